//! What was last seen of objects that are gone.

use std::collections::VecDeque;

/// The newest of them, up to a number.
pub struct Departed<T> {
    most: usize,
    /// By name; the newest at the end.
    all: VecDeque<(String, T)>,
}

impl<T> Departed<T> {
    /// Remembers so many.
    pub fn up_to(most: usize) -> Self {
        Self {
            most,
            all: VecDeque::new(),
        }
    }

    /// Whether it remembers any.
    pub fn remembers(&self) -> bool {
        self.most > 0
    }

    /// An object is gone that was so at the end.
    pub fn add(&mut self, name: String, last: T) {
        self.all.push_back((name, last));
        while self.all.len() > self.most {
            self.all.pop_front();
        }
    }

    /// The newest of this name.
    pub fn get(&self, name: &str) -> Option<&T> {
        let found = self.all.iter().rev().find(|(departed, _)| departed == name);
        found.map(|(_, last)| last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_of_a_name_counts_and_the_oldest_are_forgotten() {
        let mut departed = Departed::up_to(2);
        for (name, last) in [("a", 1), ("b", 2), ("b", 3)] {
            departed.add(name.to_owned(), last);
        }
        assert_eq!((departed.get("a"), departed.get("b")), (None, Some(&3)));
    }

    #[test]
    fn nothing_is_remembered_where_nothing_is_asked_for() {
        let mut departed = Departed::up_to(0);
        assert!(!departed.remembers());
        departed.add("a".to_owned(), 1);
        assert_eq!(departed.get("a"), None);
    }
}
