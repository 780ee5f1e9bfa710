//! Where in a YAML text a field stands.

use std::{cell::Cell, fmt};

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// One step on the way to a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Segment {
    /// A field of a map.
    Field(String),
    /// An item of a list, counted from 0.
    Item(usize),
}

/// The way to a field, printed as `events[2].fault.degradedNode.node`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Path(Vec<Segment>);

impl Path {
    /// The same with one more step: a field.
    #[must_use]
    pub fn field(&self, name: &str) -> Self {
        self.with(Segment::Field(name.to_owned()))
    }

    /// The same with one more step: an item of a list.
    #[must_use]
    pub fn item(&self, index: usize) -> Self {
        self.with(Segment::Item(index))
    }

    fn with(&self, segment: Segment) -> Self {
        let mut all = self.0.clone();
        all.push(segment);
        Self(all)
    }

    /// The line, counted from 1, where the field's value begins; of what contains it, where it is absent.
    pub fn line(&self, text: &str) -> Option<usize> {
        (0..=self.0.len())
            .rev()
            .find_map(|length| line(text, self.0.get(..length)?))
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, segment) in self.0.iter().enumerate() {
            match segment {
                Segment::Field(name) if index == 0 => f.write_str(name)?,
                Segment::Field(name) => write!(f, ".{name}")?,
                Segment::Item(item) => write!(f, "[{item}]")?,
            }
        }
        Ok(())
    }
}

/// Walks to the field and refuses it there: the parser then says where that was.
fn line(text: &str, path: &[Segment]) -> Option<usize> {
    let found = Cell::new(false);
    let walk = Walk { path, found: &found };
    let refused = walk.deserialize(serde_yaml::Deserializer::from_str(text)).err()?;
    found.get().then(|| refused.location().map(|l| l.line()))?
}

#[derive(Clone, Copy)]
struct Walk<'a> {
    path: &'a [Segment],
    found: &'a Cell<bool>,
}

impl<'de> DeserializeSeed<'de> for Walk<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        if self.path.is_empty() {
            self.found.set(true);
        }
        deserializer.deserialize_any(self)
    }
}

/// What is not overridden is refused.
impl<'de> Visitor<'de> for Walk<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the field")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        if let Some((Segment::Field(name), path)) = self.path.split_first() {
            while let Some(key) = map.next_key::<String>()? {
                if key == *name {
                    return map.next_value_seed(Walk { path, ..self });
                }
                map.next_value::<IgnoredAny>()?;
            }
        }
        Err(serde::de::Error::custom("no further"))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        if let Some((Segment::Item(index), path)) = self.path.split_first() {
            for _ in 0..*index {
                items.next_element::<IgnoredAny>()?;
            }
            items.next_element_seed(Walk { path, ..self })?;
        }
        Err(serde::de::Error::custom("no further"))
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const TEXT: &str = "a: 1\n# about b\nb:\n  - c: x\n    d: y\n  - c: {e: 1,\n      f: 2}\n  -\n    c: z\n";

    fn path(text: &str) -> Path {
        text.split('.')
            .fold(Path::default(), |path, part| match part.parse() {
                Ok(index) => path.item(index),
                Err(_) => path.field(part),
            })
    }

    #[rstest]
    #[case("a", 1)]
    #[case("b.0.c", 4)]
    #[case("b.0.d", 5)]
    #[case("b.1.c.e", 6)]
    #[case("b.1.c.f", 7)]
    #[case("b.2.c", 9)]
    #[case::absent("b.0.x", 4)]
    #[case::past_the_end("b.7", 4)]
    #[case::not_a_map("a.x.y", 1)]
    fn a_field_has_its_line_or_that_of_what_contains_it(#[case] to: &str, #[case] line: usize) {
        assert_eq!(path(to).line(TEXT), Some(line));
    }

    #[test]
    fn a_path_reads_as_people_write_it() {
        assert_eq!(path("b.1.c.f").to_string(), "b[1].c.f");
    }
}
