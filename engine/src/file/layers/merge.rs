//! One tree over another.

use crate::base::document::{Key, Tree, Value};

/// Lays `over` over `base`: maps key by key, everything else as a whole. Nothing (`~`) takes a key away.
pub(super) fn lay(base: &mut Tree, over: Tree) {
    lay_at(base, over, None);
}

fn lay_at(base: &mut Tree, over: Tree, key: Option<&str>) {
    if let (Some(key), Value::Map(entries)) = (key, &over.value)
        && !entries.iter().any(|(key, _)| key.name == "from")
    {
        lengthen(key, base);
    }
    let (entries, over) = match (&mut base.value, over) {
        (Value::Map(entries), Tree { value: Value::Map(over), .. }) => (entries, over),
        (_, mut over) => {
            remove_nothings(&mut over);
            *base = over;
            return;
        }
    };
    // Another kind has another config.
    let kind = |entries: &[(Key, Tree)]| {
        entries.iter().find(|(key, _)| key.name == "kind").and_then(|(_, kind)| kind.as_text().map(str::to_string))
    };
    if kind(&over).is_some_and(|new| kind(entries).is_some_and(|old| old != new)) {
        entries.retain(|(key, _)| key.name != "config");
    }
    let connections = key == Some("inputs");
    for (key, mut value) in over {
        let at = entries.iter().position(|(known, _)| known.name == key.name);
        match (at, &value.value) {
            (Some(at), Value::Null) => {
                entries.remove(at);
            }
            (None, Value::Null) => {}
            (Some(at), _) => {
                let name = if connections { "from" } else { key.name.as_str() };
                lay_at(&mut entries[at].1, value, Some(name));
            }
            (None, _) => {
                remove_nothings(&mut value);
                entries.push((key, value));
            }
        }
    }
}

/// `from: camera` as `from: { from: camera }`, so that something can be added to it.
pub(super) fn lengthen(key: &str, tree: &mut Tree) {
    if key == "from" && tree.as_text().is_some() {
        let place = tree.place.clone();
        let text = std::mem::replace(&mut tree.value, Value::Null);
        let from = Tree { place: place.clone(), value: text };
        tree.value = Value::Map(vec![(Key { place, name: "from".into() }, from)]);
    }
}

/// What takes a key away has none to take away where everything is new.
fn remove_nothings(tree: &mut Tree) {
    if let Value::Map(entries) = &mut tree.value {
        entries.retain(|(_, value)| value.value != Value::Null);
        entries.iter_mut().for_each(|(_, value)| remove_nothings(value));
    }
}

/// Adds what `base` does not say itself.
pub(super) fn fill(base: &mut Tree, with: &Tree) {
    let (Value::Map(entries), Value::Map(with)) = (&mut base.value, &with.value) else { return };
    for (key, value) in with {
        match entries.iter_mut().find(|(known, _)| known.name == key.name) {
            Some((_, base)) => fill(base, value),
            None => entries.push((key.clone(), value.clone())),
        }
    }
}
