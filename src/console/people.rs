//! Who may sign in: a file of tokens, one line each, with name, roles and a salted hash. The token itself stands nowhere.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use hmac::{Hmac, Mac};
use sha2::Sha256;

use crate::error::{Error, Fault, Result, codes};
use crate::intents::{hex, unhex};

/// What somebody may do.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, clap::ValueEnum)]
pub enum Role {
    /// Look.
    Viewer,
    /// Look; resolve, force, cancel, release lanes.
    Operator,
    /// Look; approve and deny.
    Approver,
    /// Everything.
    Admin,
}

impl Role {
    /// All of them.
    pub const ALL: [Role; 4] = [Role::Viewer, Role::Operator, Role::Approver, Role::Admin];
    /// Its word.
    pub fn word(self) -> &'static str {
        match self {
            Role::Viewer => "viewer",
            Role::Operator => "operator",
            Role::Approver => "approver",
            Role::Admin => "admin",
        }
    }
}

/// Somebody who is known.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Person {
    /// The name that stands beside decisions.
    pub name: String,
    /// What they may do.
    pub roles: BTreeSet<Role>,
    /// Which of their tokens: the beginning of its hash; or which account at the issuer.
    pub token: String,
}

impl Person {
    /// Whether they have one of these roles; an admin has all.
    pub fn is(&self, roles: &[Role]) -> bool {
        self.roles.contains(&Role::Admin) || roles.iter().any(|r| self.roles.contains(r))
    }
    /// Their roles in words.
    pub fn words(&self) -> String {
        self.roles.iter().map(|r| r.word()).collect::<Vec<_>>().join(", ")
    }
}

#[derive(Clone)]
struct Line {
    person: Person,
    salt: Vec<u8>,
    hash: Vec<u8>,
}

/// Who is known, as the file has it now: it is read again when it changes, so that a line that is taken out ends its sessions.
pub struct People {
    file: PathBuf,
    read: Mutex<(Option<(SystemTime, u64)>, Arc<Vec<Line>>)>,
}

/// Longest name of a person.
pub const LONGEST: usize = 128;

impl People {
    /// Reads the file.
    ///
    /// # Errors
    /// `FILE_UNREADABLE`, `BAD_VALUE`; also where it names nobody.
    pub fn open(file: &Path) -> Result<Self> {
        let people = Self { file: file.to_owned(), read: Mutex::default() };
        let lines = people.lines()?;
        if lines.is_empty() {
            return Err(Error::new(codes::BAD_VALUE, Fault::Configuration, format!("reading {}: it names nobody", file.display()))
                .next("`readback console token --name you@team --role operator` prints a line for it"));
        }
        Ok(people)
    }

    /// Whose token this is.
    pub fn verify(&self, token: &str) -> Result<Option<Person>> {
        // Every line is tried: the time tells nothing of which one fits.
        let lines = self.lines()?;
        let mut found = None;
        for line in lines.iter() {
            if mac(&line.salt, token).verify_slice(&line.hash).is_ok() {
                found = Some(&line.person);
            }
        }
        Ok(found.cloned())
    }

    /// The person of a session, if that token is still in the file; with the roles that it has now.
    pub fn known(&self, name: &str, token: &str) -> Result<Option<Person>> {
        let lines = self.lines()?;
        Ok(lines.iter().find(|l| l.person.name == name && l.person.token == token).map(|l| l.person.clone()))
    }

    fn lines(&self) -> Result<Arc<Vec<Line>>> {
        let unreadable = |e: std::io::Error| {
            Error::new(codes::FILE_UNREADABLE, Fault::Configuration, format!("reading the tokens in {}", self.file.display()))
                .because(e)
        };
        let about = std::fs::metadata(&self.file).map_err(unreadable)?;
        let stamp = (about.modified().map_err(unreadable)?, about.len());
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if read.0 != Some(stamp) {
            let text = std::fs::read_to_string(&self.file).map_err(unreadable)?;
            *read = (Some(stamp), Arc::new(parse(&text, &self.file)?));
        }
        Ok(read.1.clone())
    }
}

fn parse(text: &str, file: &Path) -> Result<Vec<Line>> {
    let mut lines = Vec::new();
    for (n, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let wrong = |why: &str| {
            // The line itself is not shown: somebody may have written a token into it.
            Error::new(codes::BAD_VALUE, Fault::Configuration, format!("reading the tokens in {}, line {}", file.display(), n + 1))
                .because(why.to_owned())
                .next("`readback console token` prints a line for it")
        };
        let parts: Vec<&str> = line.split_whitespace().collect();
        let [name, roles, salt, hash] = parts[..] else { return Err(wrong("a line is: name roles salt hash")) };
        if name.len() > LONGEST {
            return Err(wrong("the name is too long"));
        }
        let role = |word: &str| Role::ALL.into_iter().find(|r| r.word() == word);
        let roles: Option<BTreeSet<Role>> = roles.split(',').map(role).collect();
        let roles = roles.ok_or_else(|| wrong("roles are viewer, operator, approver, admin, with commas"))?;
        let salt = unhex(salt).filter(|s| s.len() >= 16).ok_or_else(|| wrong("the salt is 16 bytes in hex"))?;
        let bytes = unhex(hash).filter(|h| h.len() == 32).ok_or_else(|| wrong("the hash is 32 bytes in hex"))?;
        lines.push(Line {
            person: Person { name: name.to_owned(), roles, token: hash[..16].to_ascii_lowercase() },
            salt,
            hash: bytes,
        });
    }
    Ok(lines)
}

/// A new token and its line for the file.
///
/// # Errors
/// `USAGE` for a name that no line can hold.
pub fn make(name: &str, roles: &[Role]) -> Result<(String, String)> {
    let wrong =
        |why: &str| Error::new(codes::USAGE, Fault::Configuration, format!("making a token for `{name}`")).because(why.to_owned());
    if name.is_empty() || name.len() > LONGEST || name.starts_with('#') || name.chars().any(|c| c.is_whitespace() || c.is_control())
    {
        return Err(wrong("a name has no spaces, does not begin with #, and is at most 128 bytes long"));
    }
    if roles.is_empty() {
        return Err(wrong("it needs a role"));
    }
    let token = format!("rbt_{}", secret());
    let salt = uuid::Uuid::new_v4().into_bytes();
    let words: BTreeSet<&str> = roles.iter().map(|r| r.word()).collect();
    let words: Vec<&str> = words.into_iter().collect();
    let hash = hex(&mac(&salt, &token).finalize().into_bytes());
    Ok((token, format!("{name} {} {} {hash}", words.join(","), hex(&salt))))
}

/// 244 bits that nobody guesses, in hex.
pub fn secret() -> String {
    format!("{}{}", uuid::Uuid::new_v4().simple(), uuid::Uuid::new_v4().simple())
}

/// HMAC-SHA-256 under this key.
pub fn mac(key: &[u8], text: &str) -> Hmac<Sha256> {
    // HMAC takes keys of any length; the other branch is there for the types.
    let mut mac = Hmac::<Sha256>::new_from_slice(key).unwrap_or_else(|_| Hmac::new(&Default::default()));
    mac.update(text.as_bytes());
    mac
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// If this broke, a token in the file could be used by whoever reads it, or one that was taken out would go on working.
    #[test]
    fn a_token_is_known_by_its_hash_while_it_is_in_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("tokens");
        let (token, line) = make("mira@acme", &[Role::Operator, Role::Approver]).unwrap();
        assert!(!line.contains(&token[4..]));
        std::fs::write(&file, format!("# on duty\n\n{line}\n")).unwrap();
        let people = People::open(&file).unwrap();
        let mira = people.verify(&token).unwrap().unwrap();
        assert_eq!((mira.name.as_str(), mira.words().as_str()), ("mira@acme", "operator, approver"));
        assert!(mira.is(&[Role::Approver]) && !mira.is(&[Role::Admin]));
        assert_eq!(people.verify(&token.replace("rbt_", "rbt-")).unwrap(), None);
        let hash = line.rsplit(' ').next().unwrap();
        assert_eq!((people.verify(hash).unwrap(), people.verify("").unwrap()), (None, None));
        assert_eq!(people.known("mira@acme", &mira.token).unwrap(), Some(mira.clone()));
        assert_eq!(people.known("noor@acme", &mira.token).unwrap(), None);
        let (_, other) = make("noor@acme", &[Role::Viewer]).unwrap();
        std::fs::write(&file, format!("{other}\n# rotated\n")).unwrap();
        assert_eq!((people.verify(&token).unwrap(), people.known("mira@acme", &mira.token).unwrap()), (None, None));
    }

    /// If this broke, a line that is mistyped would let nobody in without a word, or print what may be a token.
    #[test]
    fn lines_that_are_wrong_are_named_and_not_shown() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("tokens");
        let salt = "00".repeat(16);
        for line in
            ["mira rbt_secret", &format!("mira boss {salt} {}", "00".repeat(32)), &format!("mira admin {salt} 00"), "", "# nobody"]
        {
            std::fs::write(&file, line).unwrap();
            let e = People::open(&file).err().unwrap();
            assert_eq!((e.code, e.fault), (codes::BAD_VALUE, Fault::Configuration), "{line}");
            assert!(!e.to_string().contains("rbt_secret"), "{e}");
        }
        for name in ["", "a b", "#a", "a\nb"] {
            assert_eq!(make(name, &[Role::Viewer]).unwrap_err().code, codes::USAGE);
        }
    }
}
