//! What a verified token says about a person: their name, and the roles that its claims stand for. Pure.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::console::people::{LONGEST, Person, Role};
use crate::error::{Error, Fault, Result, codes};
use crate::intents::hex;

/// How claims become a person.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mapping {
    /// A value of the roles claim, and what it stands for.
    pub roles: BTreeMap<String, BTreeSet<Role>>,
    /// Where those values stand.
    pub roles_claim: String,
    /// The claim that becomes the name.
    pub name_claim: String,
}

impl Mapping {
    /// Reads the roles of a configuration.
    ///
    /// # Errors
    /// `BAD_VALUE` for a word that is no role.
    pub fn read(roles: &BTreeMap<String, String>, roles_claim: &str, name_claim: &str) -> Result<Self> {
        let role = |word: &str| Role::ALL.into_iter().find(|r| r.word() == word.trim());
        let mut mapped = BTreeMap::new();
        for (value, words) in roles {
            let all: Option<BTreeSet<Role>> = words.split(',').map(role).collect();
            let all = all.ok_or_else(|| {
                Error::new(codes::BAD_VALUE, Fault::Configuration, format!("reading the role of `{value}` in console.oidc.roles"))
                    .because(format!("`{words}` is no role: they are viewer, operator, approver, admin, with commas"))
            })?;
            mapped.insert(value.clone(), all);
        }
        Ok(Self { roles: mapped, roles_claim: roles_claim.to_owned(), name_claim: name_claim.to_owned() })
    }

    /// The person whom these claims are about.
    ///
    /// # Errors
    /// `SIGN_IN_REFUSED` without a usable name, `NOT_PERMITTED` without a mapped role.
    pub fn person(&self, claims: &Value) -> Result<Person> {
        let name = self.name(claims)?;
        let roles = self.roles(claims);
        if roles.is_empty() {
            return Err(Error::new(codes::NOT_PERMITTED, Fault::Verdict, format!("signing in {name}"))
                .because(format!("no value of `{}` in the token stands for a role here", self.roles_claim))
                .next("ask whoever runs the issuer for a group that console.oidc.roles names"));
        }
        Ok(Person { name, roles, token: identity(claims) })
    }

    fn name(&self, claims: &Value) -> Result<String> {
        let claim = &self.name_claim;
        let refused = |why: String| {
            Error::new(codes::SIGN_IN_REFUSED, Fault::Verdict, "reading the name in the token")
                .because(why)
                .next("set console.oidc.name_claim to a claim that the token has, and console.oidc.scopes to what brings it")
        };
        let name = at(claims, claim).and_then(Value::as_str).map(str::trim).filter(|n| !n.is_empty());
        let name = name.ok_or_else(|| refused(format!("it has no claim `{claim}`")))?;
        // Anybody may write anybody's address into a profile.
        if claim == "email" && claims["email_verified"] != Value::Bool(true) {
            return Err(refused("its `email` is not verified by the issuer".to_owned()));
        }
        if name.len() > LONGEST || name.chars().any(char::is_control) {
            return Err(refused(format!("its `{claim}` is longer than {LONGEST} bytes, or holds control characters")));
        }
        Ok(name.to_owned())
    }

    fn roles(&self, claims: &Value) -> BTreeSet<Role> {
        let values: Vec<&str> = match at(claims, &self.roles_claim) {
            Some(Value::String(one)) => vec![one],
            Some(Value::Array(all)) => all.iter().filter_map(Value::as_str).collect(),
            _ => Vec::new(),
        };
        values.into_iter().filter_map(|v| self.roles.get(v)).flatten().copied().collect()
    }
}

/// A claim by its whole name, which may hold dots, or by a path of names.
fn at<'v>(claims: &'v Value, path: &str) -> Option<&'v Value> {
    claims.get(path).or_else(|| path.split('.').try_fold(claims, |at, name| at.get(name)))
}

/// Marks the identity of somebody whom an issuer vouches for.
const MARK: &str = "oidc-";

/// Which account this is: names may change, issuer and subject do not.
fn identity(claims: &Value) -> String {
    let text = |name: &str| claims[name].as_str().unwrap_or_default();
    let mut h = Sha256::new();
    for part in [text("iss"), text("sub")] {
        h.update((part.len() as u64).to_be_bytes());
        h.update(part);
    }
    format!("{MARK}{}", &hex(&h.finalize())[..32])
}

/// Whether a person's identity is an issuer's word.
pub fn vouched(identity: &str) -> bool {
    identity.starts_with(MARK)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn mapping(roles_claim: &str, name_claim: &str) -> Mapping {
        let roles = [("sre", "operator"), ("leads", "approver, viewer"), ("boss", "admin")];
        let roles = roles.into_iter().map(|(v, r)| (v.to_owned(), r.to_owned())).collect();
        Mapping::read(&roles, roles_claim, name_claim).expect("roles")
    }

    /// If this broke, somebody would get in without a role, with roles of a claim that nobody named, or as somebody else.
    #[test]
    fn a_person_has_the_roles_that_their_claims_stand_for() {
        let claims = json!({
            "iss": "https://id.acme.example", "sub": "7", "preferred_username": "mira@acme", "groups": ["sre", "leads", "other", 7],
            "realm_access": { "roles": ["boss"] }, "https://acme.example/roles": "sre", "email": "noor@acme", "spaced": "sre boss",
        });
        let of = |roles: &str, name: &str| mapping(roles, name).person(&claims).map(|p| (p.name.clone(), p.words()));
        let mira = |words: &str| ("mira@acme".to_owned(), words.to_owned());
        assert_eq!(of("groups", "preferred_username").expect("in"), mira("viewer, operator, approver"));
        assert_eq!(of("realm_access.roles", "preferred_username").expect("in"), mira("admin"));
        assert_eq!(of("https://acme.example/roles", "preferred_username").expect("in"), mira("operator"));
        for (roles, name, code) in [
            ("none", "preferred_username", codes::NOT_PERMITTED),
            ("realm_access", "preferred_username", codes::NOT_PERMITTED),
            ("spaced", "preferred_username", codes::NOT_PERMITTED),
            ("groups", "nickname", codes::SIGN_IN_REFUSED),
            ("groups", "email", codes::SIGN_IN_REFUSED),
            ("groups", "groups", codes::SIGN_IN_REFUSED),
        ] {
            assert_eq!(of(roles, name).expect_err("stays out").code, code, "{roles} {name}");
        }
        let person = |c: Value| mapping("groups", "preferred_username").person(&c).map(|p| p.token);
        let renamed = person(json!({ "iss": "https://id.acme.example", "sub": "7", "preferred_username": "m", "groups": "sre" }));
        let other = person(json!({ "iss": "https://id.acme.example", "sub": "8", "preferred_username": "m", "groups": "sre" }));
        assert_eq!(renamed.expect("in"), person(claims.clone()).expect("in"));
        assert_ne!(other.expect("in"), person(claims.clone()).expect("in"));
        for name in ["", " ", "a\nb", &"x".repeat(200)] {
            let mut c = claims.clone();
            c["preferred_username"] = name.into();
            assert!(person(c).is_err(), "{name:?}");
        }
    }

    /// If this broke, a mistyped role would let nobody in without a word.
    #[test]
    fn a_word_that_is_no_role_is_named() {
        let e = Mapping::read(&[("sre".to_owned(), "boss".to_owned())].into(), "groups", "sub").expect_err("is refused");
        assert_eq!(e.code, codes::BAD_VALUE);
        assert!(crate::console::problem::words(&e).contains("`boss` is no role"), "{e}");
    }
}
