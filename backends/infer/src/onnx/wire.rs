//! The protobuf messages of an ONNX file, with the fields that are used here.
//!
//! prost checks that every message and field lies inside its parent, even fields that are not
//! declared here and skipped. Field numbers are those of `onnx.proto`.

use prost::bytes::Bytes;

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Model {
    #[prost(int64, optional, tag = "1")]
    pub(super) ir_version: Option<i64>,
    #[prost(message, optional, tag = "7")]
    pub(super) graph: Option<Graph>,
    #[prost(message, repeated, tag = "8")]
    pub(super) opsets: Vec<OpSet>,
    #[prost(message, repeated, tag = "14")]
    pub(super) metadata: Vec<Metadata>,
    /// Only their names: models with functions are refused.
    #[prost(message, repeated, tag = "25")]
    pub(super) functions: Vec<Function>,
}

/// A key and its value, which no runtime reads: slices of the file, which need not be text.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Metadata {
    #[prost(bytes = "bytes", tag = "1")]
    pub(super) key: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    pub(super) value: Bytes,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Function {
    #[prost(string, tag = "1")]
    pub(super) name: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct OpSet {
    #[prost(string, tag = "1")]
    pub(super) domain: String,
    #[prost(int64, tag = "2")]
    pub(super) version: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Graph {
    #[prost(message, repeated, tag = "1")]
    pub(super) nodes: Vec<Node>,
    #[prost(message, repeated, tag = "5")]
    pub(super) initializers: Vec<Tensor>,
    #[prost(message, repeated, tag = "11")]
    pub(super) inputs: Vec<ValueInfo>,
    #[prost(message, repeated, tag = "12")]
    pub(super) outputs: Vec<ValueInfo>,
    /// Not used here, but by runtimes: declared so that its encoding is checked.
    #[prost(message, repeated, tag = "13")]
    pub(super) value_info: Vec<ValueInfo>,
    #[prost(message, repeated, tag = "15")]
    pub(super) sparse_initializers: Vec<SparseTensor>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Node {
    #[prost(string, repeated, tag = "1")]
    pub(super) inputs: Vec<String>,
    #[prost(string, repeated, tag = "2")]
    pub(super) outputs: Vec<String>,
    #[prost(string, tag = "3")]
    pub(super) name: String,
    #[prost(string, tag = "4")]
    pub(super) op: String,
    #[prost(message, repeated, tag = "5")]
    pub(super) attributes: Vec<Attribute>,
    #[prost(string, tag = "7")]
    pub(super) domain: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Attribute {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(float, optional, tag = "2")]
    pub(super) float: Option<f32>,
    #[prost(int64, optional, tag = "3")]
    pub(super) int: Option<i64>,
    #[prost(bytes = "bytes", tag = "4")]
    pub(super) text: Bytes,
    #[prost(message, optional, tag = "5")]
    pub(super) tensor: Option<Tensor>,
    #[prost(message, optional, boxed, tag = "6")]
    pub(super) graph: Option<Box<Graph>>,
    // As `onnx.proto` has it: parsers of runtimes take these lists no other way.
    #[prost(float, repeated, packed = "false", tag = "7")]
    pub(super) floats: Vec<f32>,
    #[prost(int64, repeated, packed = "false", tag = "8")]
    pub(super) ints: Vec<i64>,
    #[prost(bytes = "bytes", repeated, tag = "9")]
    pub(super) texts: Vec<Bytes>,
    #[prost(message, repeated, tag = "10")]
    pub(super) tensors: Vec<Tensor>,
    #[prost(message, repeated, tag = "11")]
    pub(super) graphs: Vec<Graph>,
    /// Its type, which runtimes read: for nodes that are written here.
    #[prost(int32, tag = "20")]
    pub(super) kind: i32,
    #[prost(message, optional, tag = "22")]
    pub(super) sparse: Option<SparseTensor>,
    #[prost(message, repeated, tag = "23")]
    pub(super) sparses: Vec<SparseTensor>,
}

impl Attribute {
    /// Returns its integer. A writer with proto3 leaves out a 0, which only the attribute's type
    /// then shows.
    pub(super) fn integer(&self) -> Option<i64> {
        self.int.or((self.kind == 2).then_some(0))
    }

    /// Returns its float, likewise.
    pub(super) fn number(&self) -> Option<f32> {
        self.float.or((self.kind == 1).then_some(0.0))
    }
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Tensor {
    #[prost(int64, repeated, packed = "false", tag = "1")]
    pub(super) dims: Vec<i64>,
    #[prost(int32, tag = "2")]
    pub(super) elem: i32,
    #[prost(float, repeated, tag = "4")]
    pub(super) floats: Vec<f32>,
    #[prost(int32, repeated, tag = "5")]
    pub(super) ints: Vec<i32>,
    #[prost(int64, repeated, tag = "7")]
    pub(super) longs: Vec<i64>,
    #[prost(string, tag = "8")]
    pub(super) name: String,
    /// A slice of the file, not a copy.
    #[prost(bytes = "bytes", optional, tag = "9")]
    pub(super) raw: Option<Bytes>,
    #[prost(double, repeated, tag = "10")]
    pub(super) doubles: Vec<f64>,
    #[prost(uint64, repeated, tag = "11")]
    pub(super) ulongs: Vec<u64>,
    #[prost(message, repeated, tag = "13")]
    pub(super) external: Vec<Entry>,
    #[prost(int32, tag = "14")]
    pub(super) location: i32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct SparseTensor {
    #[prost(message, optional, tag = "1")]
    pub(super) values: Option<Tensor>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Entry {
    #[prost(string, tag = "1")]
    pub(super) key: String,
    #[prost(string, tag = "2")]
    pub(super) value: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ValueInfo {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(message, optional, tag = "2")]
    pub(super) kind: Option<Type>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Type {
    #[prost(message, optional, tag = "1")]
    pub(super) tensor: Option<TensorType>,
    #[prost(message, optional, boxed, tag = "4")]
    pub(super) sequence: Option<Box<SequenceType>>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct SequenceType {
    #[prost(message, optional, boxed, tag = "1")]
    pub(super) elem: Option<Box<Type>>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct TensorType {
    #[prost(int32, tag = "1")]
    pub(super) elem: i32,
    #[prost(message, optional, tag = "2")]
    pub(super) shape: Option<Shape>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Shape {
    #[prost(message, repeated, tag = "1")]
    pub(super) dims: Vec<Dimension>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Dimension {
    #[prost(int64, optional, tag = "1")]
    pub(super) length: Option<i64>,
    #[prost(string, optional, tag = "2")]
    pub(super) symbol: Option<String>,
}
