//! Headers: which one a result has that was made of several messages.

use limen::message::Header;
use limen::node::MessageSet;
use limen::{Message, Tensor};

/// Returns the header of the message that began first; of those that began together, that of the first.
pub(crate) fn earliest<'a>(first: &'a Header, others: impl IntoIterator<Item = &'a Header>) -> &'a Header {
    others.into_iter().fold(first, |best, header| if header.origin < best.origin { header } else { best })
}

/// Returns the header of the message of a set, which is not empty, that began first.
pub(crate) fn of_set(set: &MessageSet<Tensor>) -> &Header {
    earliest(set[0].header(), set.iter().map(Message::header))
}

#[cfg(test)]
mod tests {
    use super::*;
    use limen::message::{DType, PortSpec};
    use limen::{TensorMut, Time};

    #[test]
    fn the_message_that_began_first_represents_a_set() {
        let message = |seq: u64, origin: u64| {
            let mut tensor = TensorMut::alone(&PortSpec::fixed(DType::U8, [])).unwrap();
            (tensor.header_mut().seq, tensor.header_mut().origin) = (seq, Time(origin));
            Message::from(tensor)
        };
        for (origins, expected) in [([5, 3, 4], 1), ([3, 3, 4], 0), ([5, 4, 3], 2)] {
            let set: MessageSet<Tensor> = (0..).zip(origins).map(|(seq, origin)| message(seq, origin)).collect();
            assert_eq!(of_set(&set).seq, expected, "{origins:?}");
        }
    }
}
