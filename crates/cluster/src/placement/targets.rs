//! How many copies each domain, drive and shard gets.

use super::Layout;
use super::assign::NONE;
use crate::stripe::mix;

/// Shares that are so near to a whole number are that number: sums of floats are not exact.
const SNAP: f64 = 1e-7;

/// Shares by water-filling, not rounded.
pub(super) struct Shares {
    pub(super) domains: Vec<f64>,
    pub(super) drives: Vec<f64>,
    pub(super) leaves: Vec<f64>,
}

pub(super) fn shares(layout: &Layout, copies: usize, groups: usize) -> Shares {
    let weight = |drive: usize| layout.drives[drive].0 as f64;
    let weights: Vec<f64> = layout.domains.iter().map(|drives| drives.clone().map(weight).sum()).collect();
    let domains = water_fill(&weights, (copies * groups) as f64, groups as f64);
    let mut drives = vec![0.0; layout.drives.len()];
    let mut leaves = vec![0.0; layout.leaves.len()];
    for (domain, share) in domains.iter().enumerate() {
        for drive in layout.domains[domain].clone() {
            drives[drive] = share * weight(drive) / weights[domain];
            let range = layout.drives[drive].1.clone();
            let count = range.len() as f64;
            leaves[range].fill(drives[drive] / count);
        }
    }
    Shares { domains, drives, leaves }
}

/// Splits `total` by weight with at most `cap` each. All get `cap` if there is no other way.
fn water_fill(weights: &[f64], total: f64, cap: f64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..weights.len()).collect();
    order.sort_by(|a, b| weights[*b].total_cmp(&weights[*a]).then(a.cmp(b)));
    let mut shares = vec![0.0; weights.len()];
    let mut left = total;
    let mut weight_left: f64 = weights.iter().sum();
    for (rank, domain) in order.iter().enumerate() {
        let share = left * weights[*domain] / weight_left;
        if share < cap {
            for domain in &order[rank..] {
                shares[*domain] = left * weights[*domain] / weight_left;
            }
            break;
        }
        shares[*domain] = cap.min(left);
        left -= shares[*domain];
        weight_left = order[rank + 1..].iter().map(|domain| weights[*domain]).sum();
    }
    shares
}

/// Whole numbers of copies. Leaves of a domain add up to the domain, domains to all copies of all groups.
pub(super) struct Targets {
    pub(super) domains: Vec<u32>,
    pub(super) leaves: Vec<u32>,
}

/// One of several that share a whole number.
#[derive(Clone, Copy, Debug)]
struct Item {
    count: u32,
    low: u32,
    high: u32,
    share: f64,
    present: u32,
    salt: u64,
}

impl Item {
    fn new(share: f64, present: u32, preferred: u32, high_max: u32, salt: u64) -> Item {
        let share = if (share - share.round()).abs() < SNAP { share.round() } else { share };
        let (low, high) = (share.floor() as u32, (share.ceil() as u32).min(high_max));
        Item { count: preferred.clamp(low.min(high), high), low, high, share, present, salt }
    }
}

impl Targets {
    pub(super) fn new(layout: &Layout, copies: usize, present: &[u32], salt: u64) -> Targets {
        let groups = present.len() / copies;
        let shares = shares(layout, copies, groups);
        let mut held = vec![0u32; layout.leaves.len()];
        for leaf in present.iter().filter(|leaf| **leaf != NONE) {
            held[*leaf as usize] += 1;
        }
        let sum = |items: &[Item], field: fn(&Item) -> u32| items.iter().map(field).sum::<u32>();
        let item = |kind: u64, index: usize, share: f64, below: &[Item], high_max: u32| {
            let salt = mix(salt ^ (kind << 60) ^ index as u64);
            Item::new(share, sum(below, |item| item.present), sum(below, |item| item.count), high_max, salt)
        };
        // From the leaves up: what each would like best; then from the top down: what it gets.
        let mut leaves: Vec<Item> = shares
            .leaves
            .iter()
            .enumerate()
            .map(|(leaf, share)| Item::new(*share, held[leaf], held[leaf], u32::MAX, mix(salt ^ leaf as u64)))
            .collect();
        let mut drives: Vec<Item> = (0..layout.drives.len())
            .map(|drive| {
                item(1, drive, shares.drives[drive], &leaves[layout.drives[drive].1.clone()], u32::MAX)
            })
            .collect();
        let mut domains: Vec<Item> = (0..layout.domains.len())
            .map(|domain| {
                let below = &drives[layout.domains[domain].clone()];
                item(2, domain, shares.domains[domain], below, groups as u32)
            })
            .collect();
        settle(&mut domains, present.len() as u32);
        for (domain, range) in layout.domains.iter().enumerate() {
            settle(&mut drives[range.clone()], domains[domain].count);
            for drive in range.clone() {
                settle(&mut leaves[layout.drives[drive].1.clone()], drives[drive].count);
            }
        }
        let counts = |items: Vec<Item>| items.into_iter().map(|item| item.count).collect();
        Targets { domains: counts(domains), leaves: counts(leaves) }
    }
}

/// Rounds some items the other way, so that all add up to `total`: first those for which that means fewer moves, then
/// those whose share is nearest.
fn settle(items: &mut [Item], total: u32) {
    let sum: u32 = items.iter().map(|item| item.count).sum();
    let grow = sum < total;
    let mut order: Vec<usize> = (0..items.len())
        .filter(|index| {
            let item = &items[*index];
            if grow { item.count < item.high } else { item.count > item.low }
        })
        .collect();
    let key = |item: &Item| {
        let (saves_move, gap) = if grow {
            (item.present > item.count, f64::from(item.count) - item.share)
        } else {
            (item.present < item.count, item.share - f64::from(item.count))
        };
        (!saves_move, gap, item.salt)
    };
    order.sort_by(|a, b| {
        let (a, b) = (key(&items[*a]), key(&items[*b]));
        a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)).then(a.2.cmp(&b.2))
    });
    let steps = sum.abs_diff(total) as usize;
    assert!(steps <= order.len(), "shares rounded up or down add up to their total");
    for index in order.into_iter().take(steps) {
        items[index].count = if grow { items[index].count + 1 } else { items[index].count - 1 };
    }
}
