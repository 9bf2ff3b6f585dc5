//! The topology as a drawing: a box for each NUMA node with its devices, one for those of no node, one for the namespaces.

use std::fmt::Write;

use super::{Device, Topology};

const WIDTH: usize = 900;
const MARGIN: usize = 20;
const LINE: usize = 18;
/// Height of a device: two lines and the space around them.
const DEVICE: usize = 2 * LINE + 16;
const NODE_COLOUR: &str = "#eef3fa";
const DEVICE_COLOUR: &str = "#ffffff";
const IDLE_COLOUR: &str = "#eeeeee";
const SPACE_COLOUR: &str = "#f6f3e8";

/// The drawing as a document.
pub(super) fn draw(topology: &Topology) -> String {
    let mut drawing = Drawing { body: String::new(), y: MARGIN };
    drawing.text(MARGIN, "start", 16, &format!("Topology of {}", topology.host));
    drawing.y += LINE;
    for node in &topology.numa_nodes {
        let title = format!("NUMA node {}: {}", node.id, node.words());
        drawing.group(&title, NODE_COLOUR, &topology.at(Some(node.id)).collect::<Vec<_>>());
    }
    let others: Vec<&Device> = topology.at(None).collect();
    if !others.is_empty() {
        drawing.group("Devices of no NUMA node", NODE_COLOUR, &others);
    }
    let spaces = &topology.namespaces;
    drawing.frame(SPACE_COLOUR, MARGIN, WIDTH - 2 * MARGIN, (spaces.len() + 1) * LINE + 16);
    drawing.y += LINE;
    drawing.text(2 * MARGIN, "start", 13, "Namespaces of this process");
    for space in spaces {
        drawing.y += LINE;
        drawing.text(2 * MARGIN, "start", 12, &space.words());
    }
    let height = drawing.y + 2 * MARGIN;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\">\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"white\"/>\n{}</svg>\n",
        drawing.body
    )
}

struct Drawing {
    body: String,
    /// Where the next line begins.
    y: usize,
}

impl Drawing {
    fn group(&mut self, title: &str, colour: &str, devices: &[&Device]) {
        let height = LINE + 16 + devices.len() * (DEVICE + 8);
        self.frame(colour, MARGIN, WIDTH - 2 * MARGIN, height);
        self.y += LINE;
        self.text(2 * MARGIN, "start", 13, title);
        self.y += 8;
        for device in devices {
            let colour = if device.transports.is_empty() { IDLE_COLOUR } else { DEVICE_COLOUR };
            self.frame(colour, 2 * MARGIN, WIDTH - 4 * MARGIN, DEVICE);
            self.y += LINE + 2;
            self.text(3 * MARGIN, "start", 13, &device.name);
            self.text(WIDTH - 3 * MARGIN, "end", 12, &device.transports());
            self.y += LINE;
            self.text(3 * MARGIN, "start", 11, &device.words());
            self.y += DEVICE + 8 - 2 * LINE - 2;
        }
        self.y += 16;
    }

    fn frame(&mut self, colour: &str, x: usize, width: usize, height: usize) {
        let _ = writeln!(
            self.body,
            "<rect x=\"{x}\" y=\"{}\" width=\"{width}\" height=\"{height}\" rx=\"4\" fill=\"{colour}\" stroke=\"#888\"/>",
            self.y
        );
    }

    fn text(&mut self, x: usize, anchor: &str, size: usize, words: &str) {
        let escaped = words.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        let _ = writeln!(
            self.body,
            "<text x=\"{x}\" y=\"{}\" text-anchor=\"{anchor}\" font-size=\"{size}\">{escaped}</text>",
            self.y
        );
    }
}
