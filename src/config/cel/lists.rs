//! Loops over lists only. The language also loops over the names of a map, so an answer that is no list at all would look like one
//! in which nothing is found.

use cel::IdedExpr;
use cel::common::ast::{CallExpr, EntryExpr, Expr, ListExpr, operators};

/// Makes every loop in `e` fail over what is no list: only a list can be added to an empty one.
pub(super) fn only(e: &mut IdedExpr) {
    match &mut e.expr {
        Expr::Select(s) => only(&mut s.operand),
        Expr::Call(c) => c.target.as_deref_mut().into_iter().chain(&mut c.args).for_each(only),
        Expr::List(l) => l.elements.iter_mut().for_each(only),
        Expr::Map(m) => m.entries.iter_mut().for_each(|x| entry(&mut x.expr)),
        Expr::Struct(s) => s.entries.iter_mut().for_each(|x| entry(&mut x.expr)),
        Expr::Comprehension(c) => {
            let c = c.as_mut();
            [&mut c.iter_range, &mut c.accu_init, &mut c.loop_cond, &mut c.loop_step, &mut c.result].into_iter().for_each(only);
            let id = c.iter_range.id;
            let empty = IdedExpr { id, expr: Expr::List(ListExpr::new(Vec::new())) };
            let args = vec![std::mem::take(&mut c.iter_range), empty];
            let sum = CallExpr { func_name: operators::ADD.to_owned(), target: None, args };
            c.iter_range = IdedExpr { id, expr: Expr::Call(sum) };
        }
        Expr::Ident(_) | Expr::Literal(_) | Expr::Unspecified => {}
    }
}

fn entry(e: &mut EntryExpr) {
    match e {
        EntryExpr::StructField(f) => only(&mut f.value),
        EntryExpr::MapEntry(m) => {
            only(&mut m.key);
            only(&mut m.value);
        }
    }
}
