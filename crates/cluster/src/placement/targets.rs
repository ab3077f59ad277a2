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
    /// What it may get if bounds cannot be kept.
    most: u32,
    share: f64,
    present: u32,
    salt: u64,
}

impl Item {
    /// A shard.
    fn new(share: f64, present: u32, salt: u64) -> Item {
        let share = if (share - share.round()).abs() < SNAP { share.round() } else { share };
        let (low, high) = (share.floor() as u32, share.ceil() as u32);
        Item { count: present.clamp(low, high), low, high, most: u32::MAX, share, present, salt }
    }

    /// What has others below it, with its share rounded to what they can add up to: each of them may be so near to a whole
    /// number that it is that number, where all together are not.
    fn above(below: &[Item], share: f64, most: u32, salt: u64) -> Item {
        let sum = |field: fn(&Item) -> u32| below.iter().map(field).fold(0, u32::saturating_add);
        let (least, greatest) = (sum(|item| item.low), sum(|item| item.high));
        let own = Item::new(share, sum(|item| item.present), salt);
        let low = own.low.min(most).clamp(least, greatest);
        let high = own.high.min(most).clamp(least, greatest);
        Item { count: sum(|item| item.count).clamp(low, high), low, high, most, ..own }
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
        // From the leaves up: what each would like best; then from the top down: what it gets.
        let mut leaves: Vec<Item> = shares
            .leaves
            .iter()
            .enumerate()
            .map(|(leaf, share)| Item::new(*share, held[leaf], mix(salt ^ leaf as u64)))
            .collect();
        let salt = |kind: u64, index: usize| mix(salt ^ (kind << 60) ^ index as u64);
        let mut drives: Vec<Item> = (0..layout.drives.len())
            .map(|drive| {
                let below = &leaves[layout.drives[drive].1.clone()];
                Item::above(below, shares.drives[drive], u32::MAX, salt(1, drive))
            })
            .collect();
        let mut domains: Vec<Item> = (0..layout.domains.len())
            .map(|domain| {
                let below = &drives[layout.domains[domain].clone()];
                Item::above(below, shares.domains[domain], groups as u32, salt(2, domain))
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
    for index in order.into_iter().take(steps) {
        items[index].count = if grow { items[index].count + 1 } else { items[index].count - 1 };
    }
    settle_anyhow(items, total);
}

/// Where sums of floats are so far off that shares rounded up or down do not add up: some get another one more or less. Weights
/// come from outside, so that is no reason to give up.
fn settle_anyhow(items: &mut [Item], total: u32) {
    let mut left = i64::from(total) - items.iter().map(|item| i64::from(item.count)).sum::<i64>();
    while left != 0 {
        let before = left;
        for item in items.iter_mut() {
            if left > 0 && item.count < item.most {
                item.count += 1;
                left -= 1;
            } else if left < 0 && item.count > 0 {
                item.count -= 1;
                left += 1;
            }
        }
        if left == before {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_add_up_is_made_up_for_by_some() {
        let item = |share: f64, most: u32| Item { most, ..Item::new(share, 0, 1) };
        let counts = |items: &[Item]| items.iter().map(|item| item.count).collect::<Vec<_>>();
        let mut items = [item(24.0, 24), item(24.0, 30), item(24.0, 30)];
        settle(&mut items, 74);
        assert_eq!(counts(&items), [24, 25, 25]);
        settle(&mut items, 70);
        assert_eq!(counts(&items).iter().sum::<u32>(), 70);
        let mut items = [item(2.0, 2), item(3.0, 3)];
        settle(&mut items, 9);
        assert_eq!(counts(&items), [2, 3], "there is no room for more");
    }

    #[test]
    fn who_has_others_below_gets_what_they_can_add_up_to() {
        let below = [Item::new(24.0 - 8e-9, 24, 1); 16];
        let above = Item::above(&below, 384.0 - 1.31e-7, 1024, 1);
        assert_eq!((above.low, above.count, above.high), (384, 384, 384));
        let below = [Item::new(24.5, 24, 1); 16];
        let above = Item::above(&below, 392.3, 1024, 1);
        assert_eq!((above.low, above.count, above.high), (392, 392, 393));
    }
}
