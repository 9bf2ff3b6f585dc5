//! The files of a crate and the names that each takes from the others, as its `use` items and paths say.
//!
//! Left out: what only tests compile, what is written inside a macro's arguments, methods (which need no import), re-exports, and what
//! a module takes from one it lies in: a child may use what its parent defines.
//! Built on `syn`; `imports` judges the graph.

use super::Graph;
use crate::failure::{Context, Outcome};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use syn::visit::Visit;
use syn::{Attribute, Item, ItemMod, ItemUse, UseTree};

/// How many re-exports in a row are followed.
const MOST_HOPS: usize = 16;

/// All modules of a crate; the first is its root.
pub struct Crate {
    modules: Vec<Module>,
}

/// A module with a file of its own, or one written inside another's file.
struct Module {
    parent: Option<usize>,
    /// Relative to the directory of the root's file.
    file: String,
    children: BTreeMap<String, usize>,
    /// Names that `use` items bring here, and the paths they come from.
    imports: BTreeMap<String, Vec<String>>,
    globs: Vec<Vec<String>>,
    /// Paths of more than one segment in the code, and all that `use` items name.
    paths: BTreeSet<Vec<String>>,
    defined: BTreeSet<String>,
}

impl Crate {
    /// Reads the file of a crate's root, and all files that its `mod` items name.
    pub fn read(root: &Path) -> Outcome<Self> {
        let mut modules = Vec::new();
        let top = root.parent().unwrap_or(root);
        read_file(&mut modules, None, root, top, top)?;
        Ok(Crate { modules })
    }

    /// Which file takes which names from which.
    pub fn graph(&self) -> Graph {
        let mut graph = Graph::new();
        for (number, module) in self.modules.iter().enumerate() {
            let imports = graph.entry(module.file.clone()).or_default();
            for path in &module.paths {
                let Some((target, name)) = self.resolve(number, path, MOST_HOPS) else { continue };
                let file = &self.modules[target].file;
                if *file != module.file && !self.lies_in(number, target) {
                    imports.entry(file.clone()).or_default().insert(name);
                }
            }
        }
        graph
    }

    fn lies_in(&self, module: usize, ancestor: usize) -> bool {
        let parents = std::iter::successors(self.modules[module].parent, |it| self.modules[*it].parent);
        parents.into_iter().any(|parent| parent == ancestor)
    }

    /// The module that defines what `path` names in module `from`, and the name there; `None` for what is not of this crate.
    fn resolve(&self, from: usize, path: &[String], hops: usize) -> Option<(usize, String)> {
        if hops == 0 {
            return None;
        }
        let mut at = from;
        let mut rest = path;
        let mut first = true;
        while let Some((segment, behind)) = rest.split_first() {
            let module = &self.modules[at];
            match segment.as_str() {
                "crate" => at = 0,
                "self" => {}
                "super" => at = module.parent?,
                name => {
                    if let Some(child) = module.children.get(name) {
                        at = *child;
                    } else if let Some(import) = module.imports.get(name) {
                        let whole: Vec<String> = import.iter().chain(behind).cloned().collect();
                        return self.resolve(at, &whole, hops - 1);
                    } else if module.defined.contains(name) {
                        return Some((at, name.to_owned()));
                    } else {
                        let of_glob = module.globs.iter().find_map(|glob| {
                            let whole: Vec<String> = glob.iter().chain(rest).cloned().collect();
                            let found = self.resolve(at, &whole, hops - 1);
                            found.filter(|(module, name)| self.modules[*module].defined.contains(name))
                        });
                        // What a macro defines cannot be seen: it is taken to be of the module that the path names.
                        return of_glob.or((!first).then(|| (at, name.to_owned())));
                    }
                }
            }
            first = false;
            rest = behind;
        }
        Some((at, path.last().cloned().unwrap_or_default()))
    }
}

/// Reads one file as a module, and its children from `directory`.
fn read_file(
    modules: &mut Vec<Module>,
    parent: Option<usize>,
    file: &Path,
    directory: &Path,
    top: &Path,
) -> Outcome<usize> {
    let shown = file.strip_prefix(top).unwrap_or(file).to_string_lossy().into_owned();
    let text = fs::read_to_string(file).context(|| format!("cannot read {}", file.display()))?;
    let parsed = syn::parse_file(&text).context(|| format!("cannot parse {}", file.display()))?;
    read_items(modules, parent, &shown, &parsed.items, directory, top)
}

fn read_items(
    modules: &mut Vec<Module>,
    parent: Option<usize>,
    file: &str,
    items: &[Item],
    directory: &Path,
    top: &Path,
) -> Outcome<usize> {
    let number = modules.len();
    let mut names = Names::default();
    for item in items {
        names.visit_item(item);
    }
    modules.push(Module {
        parent,
        file: file.to_owned(),
        children: BTreeMap::new(),
        imports: names.imports,
        globs: names.globs,
        paths: names.paths,
        defined: names.defined,
    });
    for item in items {
        let Item::Mod(module) = item else { continue };
        if is_of_tests(&module.attrs) {
            continue;
        }
        let name = module.ident.to_string();
        let within = directory.join(&name);
        let child = match &module.content {
            Some((_, items)) => read_items(modules, Some(number), file, items, &within, top)?,
            None => {
                let path = child_file(module, directory, &within);
                read_file(modules, Some(number), &path, &within, top)?
            }
        };
        modules[number].children.insert(name, child);
    }
    Ok(number)
}

fn child_file(module: &ItemMod, directory: &Path, within: &Path) -> PathBuf {
    let named = module.attrs.iter().find_map(|attribute| {
        let syn::Meta::NameValue(pair) = &attribute.meta else { return None };
        let syn::Expr::Lit(literal) = &pair.value else { return None };
        match &literal.lit {
            syn::Lit::Str(path) if pair.path.is_ident("path") => Some(directory.join(path.value())),
            _ => None,
        }
    });
    let beside = directory.join(format!("{}.rs", module.ident));
    named.unwrap_or_else(|| if beside.is_file() { beside } else { within.join("mod.rs") })
}

/// Whether only tests, models or fuzz targets compile an item.
fn is_of_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let is_condition = attribute.path().is_ident("cfg");
        let text = match &attribute.meta {
            syn::Meta::List(list) => list.tokens.to_string(),
            _ => String::new(),
        };
        let for_tests = ["test", "loom", "fuzzing", "feature = \"fuzz\""].iter().any(|it| text.contains(it));
        is_condition && for_tests && !text.contains("not")
    })
}

/// What the items of one module name; those of modules inside it are left to these.
#[derive(Default)]
struct Names {
    imports: BTreeMap<String, Vec<String>>,
    globs: Vec<Vec<String>>,
    paths: BTreeSet<Vec<String>>,
    defined: BTreeSet<String>,
}

impl Names {
    /// `hands_on` is a `use` that others may use in turn: what they take is counted as theirs, from where it is defined.
    fn tree(&mut self, tree: &UseTree, mut prefix: Vec<String>, hands_on: bool) {
        match tree {
            UseTree::Path(path) => {
                prefix.push(path.ident.to_string());
                self.tree(&path.tree, prefix, hands_on);
            }
            UseTree::Name(name) if name.ident == "self" => {
                self.import(prefix.last().cloned(), prefix, hands_on)
            }
            UseTree::Name(name) => {
                prefix.push(name.ident.to_string());
                self.import(prefix.last().cloned(), prefix, hands_on);
            }
            UseTree::Rename(rename) => {
                prefix.push(rename.ident.to_string());
                self.import(Some(rename.rename.to_string()), prefix, hands_on);
            }
            UseTree::Glob(_) => self.globs.push(prefix),
            UseTree::Group(group) => {
                for tree in &group.items {
                    self.tree(tree, prefix.clone(), hands_on);
                }
            }
        }
    }

    fn import(&mut self, name: Option<String>, path: Vec<String>, hands_on: bool) {
        if !hands_on {
            self.paths.insert(path.clone());
        }
        // `use x;` of a crate would lead back to itself.
        if let Some(name) = name.filter(|name| path != [name.clone()]) {
            self.imports.insert(name, path);
        }
    }
}

impl<'ast> Visit<'ast> for Names {
    fn visit_item(&mut self, item: &'ast Item) {
        let (name, attributes) = match item {
            Item::Const(it) => (Some(&it.ident), &it.attrs),
            Item::Enum(it) => (Some(&it.ident), &it.attrs),
            Item::Fn(it) => (Some(&it.sig.ident), &it.attrs),
            Item::Static(it) => (Some(&it.ident), &it.attrs),
            Item::Struct(it) => (Some(&it.ident), &it.attrs),
            Item::Trait(it) => (Some(&it.ident), &it.attrs),
            Item::Type(it) => (Some(&it.ident), &it.attrs),
            Item::Union(it) => (Some(&it.ident), &it.attrs),
            Item::Macro(it) => (it.ident.as_ref(), &it.attrs),
            Item::Impl(it) => (None, &it.attrs),
            Item::Use(it) => (None, &it.attrs),
            _ => return,
        };
        if is_of_tests(attributes) {
            return;
        }
        self.defined.extend(name.map(ToString::to_string));
        syn::visit::visit_item(self, item);
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        let hands_on = !matches!(item.vis, syn::Visibility::Inherited);
        self.tree(&item.tree, Vec::new(), hands_on);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.segments.len() > 1 && path.leading_colon.is_none() {
            self.paths.insert(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        }
        syn::visit::visit_path(self, path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(files: &[(&str, &str)]) -> Graph {
        let directory = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = directory.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        Crate::read(&directory.path().join("lib.rs")).unwrap().graph()
    }

    fn imports(graph: &Graph, file: &str) -> Vec<(String, Vec<String>)> {
        let one =
            |(file, names): (&String, &BTreeSet<String>)| (file.clone(), names.iter().cloned().collect());
        graph[file].iter().map(one).collect()
    }

    #[test]
    fn a_name_is_followed_through_the_module_that_hands_it_on() {
        let graph = graph(&[
            ("lib.rs", "mod ring; mod ep;"),
            ("ring/mod.rs", "mod sender; pub use sender::Sender; pub struct Size;"),
            ("ring/sender.rs", "use super::Size; pub struct Sender(Size);"),
            ("ep.rs", "use crate::ring::{self, Sender}; fn f(_: Sender) { ring::Size; }"),
        ]);
        let of_ring = vec!["Size".to_owned(), "ring".to_owned()];
        assert_eq!(
            imports(&graph, "ep.rs"),
            [("ring/mod.rs".to_owned(), of_ring), ("ring/sender.rs".to_owned(), vec!["Sender".to_owned()])]
        );
        assert!(imports(&graph, "ring/sender.rs").is_empty(), "a child may use what its parent defines");
    }

    #[test]
    fn tests_and_other_crates_count_for_nothing() {
        let graph = graph(&[
            ("lib.rs", "mod a; mod b;"),
            (
                "a.rs",
                "use std::mem; #[cfg(test)] use crate::b::B; #[cfg(test)] mod tests { use crate::b::B; }",
            ),
            ("b.rs", "use crate::a; pub struct B;"),
        ]);
        assert!(imports(&graph, "a.rs").is_empty());
        assert_eq!(imports(&graph, "b.rs").len(), 1);
    }
}
