//! Transforms: nodes that convert messages. Unless a kind says otherwise, its input is `in` and its
//! output is `out`.

pub mod argmax;
pub mod cast;
pub mod concat;
pub mod cosine;
pub mod debounce;
pub mod decimate;
pub mod delay;
pub mod embeddings;
pub mod gate;
pub mod gather;
pub mod hold;
pub mod map;
pub mod merge;
pub mod normalize;
pub mod pad;
pub mod pass;
pub mod reshape;
pub mod router;
pub mod scatter;
pub mod slice;
pub mod softmax;
pub mod stack;
pub mod synchronize;
pub mod threshold;
pub mod throttle;
pub mod top_k;
pub mod transpose;
pub mod window;

use limen::Registry;

/// Adds the kinds of this folder to a registry.
pub(crate) fn register(registry: Registry) -> Registry {
    registry
        .transform::<argmax::Argmax>("argmax")
        .transform::<cast::Cast>("cast")
        .transform::<concat::Concat>("concat")
        .transform::<cosine::Cosine>("cosine")
        .transform::<debounce::Debounce>("debounce")
        .transform::<decimate::Decimate>("decimate")
        .transform::<delay::Delay>("delay")
        .transform::<embeddings::Embeddings>("embeddings")
        .transform::<gate::GateNode>("gate")
        .transform::<gather::Gather>("gather")
        .transform::<hold::Hold>("hold")
        .transform::<map::Map>("map")
        .transform::<merge::MergeNode>("merge")
        .transform::<normalize::Normalize>("normalize")
        .transform::<pad::Pad>("pad")
        .transform::<pass::Pass>("pass")
        .transform::<reshape::Reshape>("reshape")
        .transform::<router::Router>("router")
        .transform::<scatter::Scatter>("scatter")
        .transform::<slice::SliceNode>("slice")
        .transform::<softmax::Softmax>("softmax")
        .transform::<stack::Stack>("stack")
        .transform::<synchronize::Synchronize>("synchronize")
        .transform::<threshold::Threshold>("threshold")
        .transform::<throttle::Throttle>("throttle")
        .transform::<top_k::TopK>("top_k")
        .transform::<transpose::Transpose>("transpose")
        .transform::<window::WindowNode>("window")
}
