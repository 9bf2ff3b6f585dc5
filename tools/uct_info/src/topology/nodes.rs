//! NUMA nodes: their processors, memory and distances, from /sys.

use std::fmt;

use serde::Serialize;

use crate::files::Files;
use crate::iface::bytes;

const NODES: &str = "/sys/devices/system/node";

/// A NUMA node.
#[derive(Clone, Serialize)]
pub(crate) struct Node {
    pub(crate) id: u32,
    /// `0-3,8-11`; empty if it has memory only.
    pub(crate) processors: String,
    /// Bytes.
    pub(crate) memory: Option<u64>,
    /// To each node, in their order; 10 is its own.
    pub(crate) distances: Vec<u32>,
}

/// All nodes by number; none where the kernel does not list them.
pub(crate) fn read(files: &Files) -> Vec<Node> {
    let names = files.names(NODES).into_iter();
    let ids = names.filter_map(|name| name.strip_prefix("node").and_then(|id| id.parse::<u32>().ok()));
    let mut nodes: Vec<Node> = ids.map(|id| Node::read(files, id)).collect();
    nodes.sort_unstable_by_key(|node| node.id);
    nodes
}

impl Node {
    fn read(files: &Files, id: u32) -> Node {
        let text = |name: &str| files.text(&format!("{NODES}/node{id}/{name}"));
        // "Node 0 MemTotal:       16384 kB"
        let kilobytes = |info: String| -> Option<u64> {
            let line = info.lines().find(|line| line.contains("MemTotal:"))?;
            line.split_whitespace().nth_back(1)?.parse().ok()
        };
        Node {
            id,
            processors: text("cpulist").unwrap_or_default(),
            memory: text("meminfo").and_then(kilobytes).map(|kilobytes| kilobytes << 10),
            distances: text("distance")
                .map(|line| line.split_whitespace().filter_map(|it| it.parse().ok()).collect())
                .unwrap_or_default(),
        }
    }

    /// What it has, in a few words.
    pub(crate) fn words(&self) -> String {
        let mut words = Vec::new();
        words.push(match &*self.processors {
            "" => "no processors".to_owned(),
            processors => format!("processors {processors}"),
        });
        // Whole megabytes.
        words.extend(self.memory.map(|memory| format!("{} of memory", bytes((memory >> 20 << 20) as usize))));
        if self.distances.len() > 1 {
            let distances: Vec<String> = self.distances.iter().map(u32::to_string).collect();
            words.push(format!("distances {}", distances.join(" ")));
        }
        words.join(", ")
    }
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NUMA node {}: {}", self.id, self.words())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_read_in_the_order_of_their_numbers() {
        let root = tempfile::tempdir().unwrap();
        let files = Files::below(root.path());
        assert!(read(&files).is_empty());
        for id in [10, 2] {
            let directory = files.path(&format!("{NODES}/node{id}"));
            std::fs::create_dir_all(&directory).unwrap();
            std::fs::write(directory.join("cpulist"), "0-3,8\n").unwrap();
            std::fs::write(directory.join("meminfo"), format!("Node {id} MemTotal:  2048 kB\n")).unwrap();
            std::fs::write(directory.join("distance"), "10 21\n").unwrap();
        }
        std::fs::create_dir_all(files.path(&format!("{NODES}/power"))).unwrap();
        let nodes = read(&files);
        assert_eq!(nodes.iter().map(|node| node.id).collect::<Vec<_>>(), [2, 10]);
        assert_eq!(nodes[0].memory, Some(2 << 20));
        assert_eq!(nodes[0].distances, [10, 21]);
        assert!(nodes[0].to_string().starts_with("NUMA node 2: processors 0-3,8, "), "{}", nodes[0]);
    }
}
