//! A list that usually has one element, which then needs no heap: the keys of a request, its grants.

use std::ops::Deref;

/// One element, or any number of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OneOrMany<T> {
    /// One.
    One(T),
    /// None, or more than one.
    Many(Vec<T>),
}

impl<T> Deref for OneOrMany<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match self {
            OneOrMany::One(one) => std::slice::from_ref(one),
            OneOrMany::Many(many) => many,
        }
    }
}

impl<T> FromIterator<T> for OneOrMany<T> {
    fn from_iter<I: IntoIterator<Item = T>>(elements: I) -> OneOrMany<T> {
        let mut elements = elements.into_iter();
        match (elements.next(), elements.next()) {
            (Some(one), None) => OneOrMany::One(one),
            (first, second) => OneOrMany::Many(first.into_iter().chain(second).chain(elements).collect()),
        }
    }
}

impl<T> IntoIterator for OneOrMany<T> {
    type Item = T;
    type IntoIter = std::iter::Chain<std::option::IntoIter<T>, std::vec::IntoIter<T>>;

    fn into_iter(self) -> Self::IntoIter {
        let (one, many) = match self {
            OneOrMany::One(one) => (Some(one), Vec::new()),
            OneOrMany::Many(many) => (None, many),
        };
        one.into_iter().chain(many)
    }
}

impl<'a, T> IntoIterator for &'a OneOrMany<T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_has_the_elements_put_in() {
        for elements in [vec![], vec![1], vec![1, 2], vec![1, 2, 3]] {
            let list: OneOrMany<i32> = elements.iter().copied().collect();
            assert_eq!(matches!(list, OneOrMany::One(_)), elements.len() == 1);
            assert_eq!((&list[..], (&list).into_iter().count()), (&elements[..], elements.len()));
            assert_eq!(list.into_iter().collect::<Vec<_>>(), elements);
        }
    }
}
