//! LOCK.SCAN and LOCK.TOP report the same about all keys as LOCK.INFO and LOCK.WAITERS about each at the same moment.

use std::cmp::Reverse;

use lock::testing::contract::Name;

use crate::support::Reply;

/// Compares each key's LOCK.INFO and LOCK.WAITERS with `lists`, the replies to LOCK.SCAN and LOCK.TOP.
pub fn compare(keys: Vec<(Name, &Reply, &Reply)>, lists: &[Reply]) -> Result<(), String> {
    let [scan, top] = lists else { return Err("a list is missing".into()) };
    // Excludes values of another data type, whose waiters may not have their replies yet.
    let keys: Vec<_> = keys.into_iter().filter(|(_, info, _)| !info.is_error()).collect();
    let is_known = |lock: &&Reply| keys.iter().any(|(key, ..)| lock.get("key").is_bulk(key));

    let field = |map: &Reply, name: &str| format!("{:?}", map.get(name));
    let mut listed: Vec<_> = scan.items()[1]
        .items()
        .iter()
        .filter(is_known)
        .map(|lock| ["key", "kind", "owner", "holders", "ttl", "waiters"].map(|name| field(lock, name)))
        .collect();
    listed.sort_unstable();
    let held = keys.iter().filter(|(_, info, _)| !info.is_nil() && !info.get("holders").items().is_empty());
    let mut expected: Vec<_> = held
        .map(|(key, info, _)| {
            let (owner, key) = (field(&info.get("holders").items()[0], "owner"), format!("{:?}", Reply::bulk(key)));
            [key, field(info, "kind"), owner, field(info, "holding"), field(info, "ttl"), field(info, "waiters")]
        })
        .collect();
    expected.sort_unstable();
    if listed != expected {
        return Err(format!("LOCK.SCAN lists {listed:?}, and LOCK.INFO says {expected:?}"));
    }

    let listed: Vec<_> = top.items().iter().filter(is_known).map(Top::listed).collect();
    let waited_for = keys.iter().filter(|(_, info, _)| !info.is_nil() && info.get("waiters").int() > 0);
    let mut expected: Vec<_> = waited_for.map(|(key, info, waiters)| Top::expected(key, info, waiters)).collect();
    let is_in_order = listed.is_sorted_by_key(|lock| (Reverse(lock.waiters), Reverse(lock.longest)));
    let mut sorted = listed.clone();
    sorted.sort_unstable();
    expected.sort_unstable();
    if is_in_order && sorted == expected {
        Ok(())
    } else {
        Err(format!("LOCK.TOP lists {listed:?}, and LOCK.INFO and LOCK.WAITERS say {expected:?}"))
    }
}

/// An entry of LOCK.TOP.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Top {
    key: String,
    kind: String,
    waiters: i64,
    longest: i64,
    holder: Option<String>,
    held: i64,
}

impl Top {
    fn listed(lock: &Reply) -> Top {
        let holder = lock.get("holder");
        Top {
            key: lock.get("key").text().into(),
            kind: lock.get("kind").text().into(),
            waiters: lock.get("waiters").int(),
            longest: lock.get("longest").int(),
            holder: (!holder.is_nil()).then(|| holder.text().into()),
            held: lock.get("held").int(),
        }
    }

    fn expected(key: &str, info: &Reply, waiters: &Reply) -> Top {
        let first = info.get("holders").items().first();
        Top {
            key: key.into(),
            kind: info.get("kind").text().into(),
            waiters: info.get("waiters").int(),
            longest: waiters.items().iter().map(|waiter| waiter.get("waited").int()).max().unwrap_or(0),
            holder: first.map(|first| first.get("owner").text().into()),
            held: first.map_or(-1, |first| first.get("age").int()),
        }
    }
}
