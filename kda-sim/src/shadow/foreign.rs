//! What is known of other clusters: a persistent tree, so that a long chain of blocks shares what it has in common.

use super::clock::Known;
use std::rc::Rc;

const BITS: u32 = 4;
const FAN: usize = 1 << BITS;
/// Levels above the leaves: clusters have 20 bits.
const LEVELS: u32 = 5;

/// A tree of clusters; each leaf holds what is known of the agents of one.
#[derive(Clone, Debug, Default)]
pub struct Foreign(Option<Rc<Node>>);

#[derive(Clone, Debug)]
enum Node {
    Inner([Option<Rc<Node>>; FAN]),
    Leaf(Vec<Known>),
}

fn slot(cluster: u32, level: u32) -> usize {
    (cluster >> (BITS * level)) as usize % FAN
}

impl Foreign {
    /// What is known of the agents of a cluster.
    pub fn get(&self, cluster: u32) -> &[Known] {
        let mut node = self.0.as_deref();
        let mut level = LEVELS;
        loop {
            match node {
                None => return &[],
                Some(Node::Leaf(known)) => return known,
                Some(Node::Inner(children)) => {
                    level -= 1;
                    node = children[slot(cluster, level)].as_deref();
                }
            }
        }
    }

    /// The agents of a cluster, to change.
    pub fn get_mut(&mut self, cluster: u32) -> &mut Vec<Known> {
        fn descend(place: &mut Option<Rc<Node>>, cluster: u32, level: u32) -> &mut Vec<Known> {
            let new = || Rc::new(if level == 0 { Node::Leaf(Vec::new()) } else { Node::Inner(Default::default()) });
            match Rc::make_mut(place.get_or_insert_with(new)) {
                Node::Leaf(known) => known,
                Node::Inner(children) => descend(&mut children[slot(cluster, level - 1)], cluster, level - 1),
            }
        }
        descend(&mut self.0, cluster, LEVELS)
    }

    /// Learns what `other` knows; what both share costs nothing.
    pub fn join(&mut self, other: &Foreign) {
        fn join(mine: &mut Option<Rc<Node>>, theirs: &Option<Rc<Node>>) {
            let Some(from) = theirs else { return };
            match mine {
                None => *mine = Some(Rc::clone(from)),
                Some(to) if Rc::ptr_eq(to, from) => {}
                Some(to) => match (Rc::make_mut(to), &**from) {
                    (Node::Inner(mine), Node::Inner(theirs)) => {
                        mine.iter_mut().zip(theirs).for_each(|(m, t)| join(m, t));
                    }
                    (Node::Leaf(mine), Node::Leaf(theirs)) => join_all(mine, theirs),
                    // Trees of one depth have leaves on one level.
                    _ => {}
                },
            }
        }
        join(&mut self.0, &other.0);
    }

    /// Changes everything known where `f` says that it is not done yet.
    pub fn update(&mut self, needed: &impl Fn(&Known) -> bool, f: &mut impl FnMut(&mut Known)) {
        fn any(node: &Node, needed: &impl Fn(&Known) -> bool) -> bool {
            match node {
                Node::Leaf(known) => known.iter().any(needed),
                Node::Inner(children) => children.iter().flatten().any(|c| any(c, needed)),
            }
        }
        fn update(place: &mut Option<Rc<Node>>, needed: &impl Fn(&Known) -> bool, f: &mut impl FnMut(&mut Known)) {
            let Some(node) = place else { return };
            if !any(node, needed) {
                return;
            }
            match Rc::make_mut(node) {
                Node::Leaf(known) => known.iter_mut().for_each(f),
                Node::Inner(children) => children.iter_mut().for_each(|c| update(c, needed, f)),
            }
        }
        update(&mut self.0, needed, f);
    }
}

/// Joins what is known of the agents of one cluster.
pub fn join_all(mine: &mut Vec<Known>, theirs: &[Known]) {
    if mine.len() < theirs.len() {
        mine.resize(theirs.len(), Known::default());
    }
    for (mine, theirs) in mine.iter_mut().zip(theirs) {
        mine.join(theirs);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shadow::clock::Entry;

    fn known(clock: u32) -> Known {
        Known { generic: Entry::all(clock), ..Known::default() }
    }

    #[test]
    fn a_join_knows_what_both_knew() {
        let (mut a, mut b) = (Foreign::default(), Foreign::default());
        for cluster in [0, 1, 15, 16, 4095, 1_048_575] {
            a.get_mut(cluster).push(known(cluster + 1));
        }
        for cluster in [1, 17, 4095] {
            *b.get_mut(cluster) = vec![known(3), known(cluster)];
        }
        let before = a.clone();
        a.join(&b);
        for (cluster, want) in
            [(0, [1, 0]), (1, [3, 1]), (17, [3, 17]), (4095, [4096, 4095]), (1_048_575, [1_048_576, 0])]
        {
            let got = [0, 1].map(|i| a.get(cluster).get(i).map_or(0, |k| k.generic.all));
            assert_eq!(got, want, "cluster {cluster}");
        }
        assert!(before.get(17).is_empty() && a.get(18).is_empty());
    }
}
