//! What a shader in WGSL declares: its entry point, its buffers and its constants.

use limen::message::DType;
use naga::valid::{Capabilities, FunctionInfo, ValidationFlags, Validator};
use naga::{AddressSpace, Module, ShaderStage, StorageAccess, TypeInner};

/// A shader as far as a node needs to know it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Interface {
    pub(crate) entry: String,
    /// Threads of a workgroup.
    pub(crate) workgroup: [u32; 3],
    pub(crate) variables: Vec<Variable>,
    pub(crate) constants: Vec<OverrideConstant>,
}

/// An `override` constant of a shader.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct OverrideConstant {
    pub(crate) name: String,
    /// How the API names it: by its `@id`, if it has one.
    pub(crate) key: String,
    pub(crate) has_value: bool,
    /// Whether it may have a fraction.
    pub(crate) is_float: bool,
}

/// A buffer of a shader.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Variable {
    pub(crate) name: String,
    pub(crate) binding: u32,
    pub(crate) is_written: bool,
    /// The type of its elements; `None` if they are no 32-bit numbers or vectors of them.
    pub(crate) scalar: Option<ShaderScalar>,
    /// The fewest bytes that it takes.
    pub(crate) least: usize,
}

/// A number of a shader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum ShaderScalar {
    F32,
    I32,
    U32,
}

impl ShaderScalar {
    /// Whether the elements of a message are these numbers, or packed in them.
    pub(crate) fn holds(self, dtype: DType) -> bool {
        matches!(
            (self, dtype),
            (ShaderScalar::F32, DType::F32) | (ShaderScalar::I32, DType::I32) | (ShaderScalar::U32, DType::U8)
        )
    }

    pub(crate) fn name(self) -> &'static str {
        self.into()
    }
}

impl Interface {
    /// Parses and checks a shader.
    ///
    /// # Errors
    /// What is wrong with it, with its line; that there is no such entry point.
    pub(crate) fn of(source: &str, entry: Option<&str>) -> Result<Interface, String> {
        let module = naga::front::wgsl::parse_str(source).map_err(|error| {
            let place = error.location(source);
            at(place.map(|place| (place.line_number, place.line_position)), error.message())
        })?;
        let info =
            Validator::new(ValidationFlags::all(), Capabilities::empty()).validate(&module).map_err(|error| {
                let place = error.location(source).map(|place| (place.line_number, place.line_position));
                let mut why = error.as_inner().to_string();
                let mut cause = std::error::Error::source(error.as_inner());
                while let Some(inner) = cause {
                    why = format!("{why}: {inner}");
                    cause = inner.source();
                }
                at(place, &why)
            })?;
        let mut compute =
            module.entry_points.iter().enumerate().filter(|(_, point)| point.stage == ShaderStage::Compute);
        let names: Vec<String> = compute.clone().map(|(_, point)| format!("`{}`", point.name)).collect();
        let found = match entry {
            Some(entry) => compute.find(|(_, point)| point.name == entry),
            None => compute.next().filter(|_| names.len() == 1),
        };
        let Some((at, point)) = found else {
            let asked =
                entry.map_or("one compute entry point".into(), |entry| format!("the compute entry point `{entry}`"));
            let there = if names.is_empty() { "none".into() } else { names.join(", ") };
            return Err(format!("expected {asked}, found {there}"));
        };
        let constants = module.overrides.iter().filter_map(|(_, constant)| {
            let name = constant.name.clone()?;
            let key = constant.id.map_or_else(|| name.clone(), |id| id.to_string());
            let is_float = matches!(&module.types[constant.ty].inner, TypeInner::Scalar(scalar) if scalar.kind == naga::ScalarKind::Float);
            Some(OverrideConstant { name, key, has_value: constant.init.is_some(), is_float })
        });
        Ok(Interface {
            entry: point.name.clone(),
            workgroup: point.workgroup_size,
            variables: variables(&module, info.get_entry_point(at))?,
            constants: constants.collect(),
        })
    }
}

fn at(place: Option<(u32, u32)>, why: &str) -> String {
    place.map_or_else(|| why.to_string(), |(line, column)| format!("line {line}, column {column}: {why}"))
}

/// Returns the buffers that an entry point uses; others cannot be bound.
fn variables(module: &Module, info: &FunctionInfo) -> Result<Vec<Variable>, String> {
    let mut found = Vec::new();
    let used = module.global_variables.iter().filter(|(handle, _)| !info[*handle].is_empty());
    for (_, variable) in used {
        let Some(binding) = &variable.binding else { continue };
        let name = variable.name.clone().unwrap_or_default();
        let AddressSpace::Storage { access } = variable.space else {
            let space = format!("{:?}", variable.space).to_lowercase();
            return Err(format!("`{name}` must be a `var<storage, …>`, got the address space `{space}`"));
        };
        if binding.group != 0 {
            return Err(format!("`{name}` must be in group 0, got {}", binding.group));
        }
        let inner = &module.types[variable.ty].inner;
        let element = match inner {
            TypeInner::Array { base, .. } => &module.types[*base].inner,
            other => other,
        };
        let scalar = match element {
            TypeInner::Scalar(scalar) | TypeInner::Vector { scalar, .. } | TypeInner::Atomic(scalar) => Some(*scalar),
            _ => None,
        };
        let scalar = scalar.filter(|scalar| scalar.width == 4).and_then(|scalar| match scalar.kind {
            naga::ScalarKind::Float => Some(ShaderScalar::F32),
            naga::ScalarKind::Sint => Some(ShaderScalar::I32),
            naga::ScalarKind::Uint => Some(ShaderScalar::U32),
            _ => None,
        });
        let (is_written, least) = (access.contains(StorageAccess::STORE), inner.size(module.to_ctx()) as usize);
        found.push(Variable { name, binding: binding.binding, is_written, scalar, least });
    }
    found.sort_by_key(|variable| variable.binding);
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shader_is_described_or_refused_with_its_line() {
        let source = "override N: u32;\n@id(7) override M: f32 = 2.0;\n\
                      @group(0) @binding(1) var<storage, read_write> y: array<f32>;\n\
                      @group(0) @binding(0) var<storage, read> x: array<vec4<u32>, 3>;\n\
                      @compute @workgroup_size(8, 4) fn main(@builtin(global_invocation_id) id: vec3<u32>) \
                      { if (id.x < N) { y[id.x] = f32(x[0].x) * M; } }";
        let found = Interface::of(source, None).unwrap();
        assert_eq!((found.entry.as_str(), found.workgroup), ("main", [8, 4, 1]));
        let constant = |name: &str, key: &str, has_value: bool, is_float: bool| OverrideConstant {
            name: name.into(),
            key: key.into(),
            has_value,
            is_float,
        };
        assert_eq!(found.constants, [constant("N", "N", false, false), constant("M", "7", true, true)]);
        let of = |name: &str| found.variables.iter().find(|variable| variable.name == name).unwrap();
        assert_eq!(
            (of("x").binding, of("x").is_written, of("x").scalar, of("x").least),
            (0, false, Some(ShaderScalar::U32), 48)
        );
        assert_eq!((of("y").binding, of("y").is_written, of("y").scalar), (1, true, Some(ShaderScalar::F32)));
        for (source, entry, why) in [
            ("fn f( {}", None, "line 1, column 7"),
            ("\n\n@compute @workgroup_size(1) fn main() { let x: u32 = 1.5; }", None, "line 3"),
            ("fn f() {}", None, "expected one compute entry point, found none"),
            ("@compute @workgroup_size(1) fn a() {}", Some("b"), "expected the compute entry point `b`, found `a`"),
            (
                "@group(0) @binding(0) var<uniform> u: vec4<f32>;\n@compute @workgroup_size(1) fn a() { let x = u.x; }",
                None,
                "`u` must be a `var<storage, …>`",
            ),
            (
                "@group(1) @binding(0) var<storage> u: array<f32>;\n@compute @workgroup_size(1) fn a() { let x = u[0]; }",
                None,
                "`u` must be in group 0, got 1",
            ),
        ] {
            let error = Interface::of(source, entry).unwrap_err();
            assert!(error.contains(why), "{source}: {error}");
        }
    }
}
