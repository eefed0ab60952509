//! Merges trees.

use crate::base::document::{Key, Tree, Value};

/// Merges `over` into `base`: maps key by key, other values as a whole. Null (`~`) removes a key.
pub(super) fn overlay(base: &mut Tree, over: Tree) {
    overlay_at(base, over, None);
}

fn overlay_at(base: &mut Tree, over: Tree, key: Option<&str>) {
    if let (Some(key), Value::Map(entries)) = (key, &over.value)
        && !entries.iter().any(|(key, _)| key.name == "from")
    {
        expand_from(key, base);
    }
    let (entries, over) = match (&mut base.value, over) {
        (Value::Map(entries), Tree { value: Value::Map(over), .. }) => (entries, over),
        (_, mut over) => {
            remove_nulls(&mut over);
            *base = over;
            return;
        }
    };
    // The config of another kind does not fit.
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
                overlay_at(&mut entries[at].1, value, Some(name));
            }
            (None, _) => {
                remove_nulls(&mut value);
                entries.push((key, value));
            }
        }
    }
}

/// Expands `from: camera` to `from: { from: camera }`, so that keys can be added.
pub(super) fn expand_from(key: &str, tree: &mut Tree) {
    if key == "from" && tree.as_text().is_some() {
        let place = tree.place.clone();
        let text = std::mem::replace(&mut tree.value, Value::Null);
        let from = Tree { place: place.clone(), value: text };
        tree.value = Value::Map(vec![(Key { place, name: "from".into() }, from)]);
    }
}

/// Removes nulls: in a new value there is nothing for them to remove.
fn remove_nulls(tree: &mut Tree) {
    if let Value::Map(entries) = &mut tree.value {
        entries.retain(|(_, value)| value.value != Value::Null);
        entries.iter_mut().for_each(|(_, value)| remove_nulls(value));
    }
}

/// Adds the keys of `with` that `base` lacks.
pub(super) fn fill(base: &mut Tree, with: &Tree) {
    let (Value::Map(entries), Value::Map(with)) = (&mut base.value, &with.value) else { return };
    for (key, value) in with {
        match entries.iter_mut().find(|(known, _)| known.name == key.name) {
            Some((_, base)) => fill(base, value),
            None => entries.push((key.clone(), value.clone())),
        }
    }
}
