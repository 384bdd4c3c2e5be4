//! How much of its variables an expression reads: a record that has a hundred members is not turned over for the one that is read.

use std::collections::BTreeSet;

use cel::common::ast::Expr;
use serde_json::Value;

/// How much of one variable is read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Extent {
    /// These members, and nothing else.
    Members(BTreeSet<String>),
    /// All of it.
    Whole,
}

impl Default for Extent {
    fn default() -> Self {
        Extent::Members(BTreeSet::new())
    }
}

impl Extent {
    /// Reads one member more; `None` = the variable itself.
    pub(super) fn add(&mut self, member: Option<&str>) {
        match (self, member) {
            (Extent::Members(all), Some(member)) => drop(all.insert(member.to_owned())),
            (whole @ Extent::Members(_), None) => *whole = Extent::Whole,
            (Extent::Whole, _) => {}
        }
    }

    /// Whether a member of that name can be read.
    pub(super) fn has(&self, member: &str) -> bool {
        match self {
            Extent::Members(all) => all.contains(member),
            Extent::Whole => true,
        }
    }
}

/// A variable, or a member within it: most expressions are no more than that, and need no engine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Path {
    variable: String,
    members: Vec<String>,
}

impl Path {
    /// The path that an expression is.
    pub(super) fn of(expression: &Expr) -> Option<Path> {
        match expression {
            Expr::Ident(name) => Some(Path { variable: name.clone(), members: Vec::new() }),
            Expr::Select(s) if !s.test => {
                let mut path = Path::of(&s.operand.expr)?;
                path.members.push(s.field.clone());
                Some(path)
            }
            _ => None,
        }
    }

    /// What stands there; `None` where nothing does: why not is for the engine to say.
    pub(super) fn find<'v>(&self, variables: &[(&str, &'v Value)]) -> Option<&'v Value> {
        let (_, variable) = variables.iter().find(|(name, _)| *name == self.variable)?;
        self.members.iter().try_fold(*variable, |value, member| value.as_object()?.get(member))
    }
}
