//! Random programs over a small set of keys.

use super::{PORTS, PROTOCOLS, Pair, Port, shown};
use ephesus_tests::Rng;

const STEPS: usize = 4000;
/// Milliseconds that two TTLs may differ because the requests were not sent at the same moment.
const TTL_TOLERANCE_MS: i64 = 3000;

#[test]
fn random_programs_are_answered_as_redis_answers() {
    let mut rng = Rng::new(ephesus_tests::seed_of_run("random programs"));
    for port in PORTS {
        for protocol in PROTOCOLS {
            let mut pair = Pair::new(port, protocol);
            let mut program = Program {
                rng: rng.fork(),
                port,
            };
            let mut trail: Vec<String> = Vec::new();
            for _ in 0..STEPS {
                let step = program.step();
                trail.push(shown(&step));
                if trail.len() > 12 {
                    trail.remove(0);
                }
                let name = step[0].to_ascii_uppercase();
                if name.ends_with(b"TTL") || name == b"EXPIRETIME" {
                    pair.close(&step, TTL_TOLERANCE_MS);
                    continue;
                }
                let (ours, theirs) = pair.ask(&step);
                assert!(
                    ours == theirs,
                    "{port:?} port, RESP{protocol}, {}: we say {ours:?}, Redis says {theirs:?}; \
                     steps before:\n{}",
                    shown(&step),
                    trail.join("\n")
                );
            }
            pair.same_unordered(&["KEYS", "*"]);
            pair.same(&["DBSIZE"]);
            for key in program.keys() {
                pair.same(&[b"GET".as_slice(), &key]);
                pair.close(&[b"PTTL".as_slice(), &key], TTL_TOLERANCE_MS);
            }
        }
    }
}

struct Program {
    rng: Rng,
    port: Port,
}

impl Program {
    /// Keys of one slot, and on the entry port also keys of many.
    fn keys(&self) -> Vec<Vec<u8>> {
        let mut keys: Vec<Vec<u8>> = (0..8)
            .map(|i| format!("{{tag}}key{i}").into_bytes())
            .collect();
        if self.port == Port::Entry {
            keys.extend((0..8).map(|i| format!("key{i}").into_bytes()));
            keys.push(Vec::new());
            keys.push(b"bin\0ary\r\n\xff".to_vec());
        }
        keys
    }

    fn key(&mut self) -> Vec<u8> {
        let keys = self.keys();
        self.rng.pick(&keys).clone()
    }

    /// A key that shares its slot with every other key this returns.
    fn tagged(&mut self) -> Vec<u8> {
        format!("{{tag}}key{}", self.rng.below(8)).into_bytes()
    }

    fn value(&mut self) -> Vec<u8> {
        match self.rng.below(8) {
            0 => Vec::new(),
            1 => b"not a number".to_vec(),
            2 => i64::MAX.to_string().into_bytes(),
            3 => b" 1".to_vec(),
            4 => {
                let len = self.rng.between(1, 9000) as usize;
                self.rng.bytes(len)
            }
            _ => (self.rng.below(2000) as i64 - 1000)
                .to_string()
                .into_bytes(),
        }
    }

    fn amount(&mut self) -> Vec<u8> {
        match self.rng.below(8) {
            0 => i64::MAX.to_string().into_bytes(),
            1 => i64::MIN.to_string().into_bytes(),
            2 => b"1.5".to_vec(),
            3 => b"9223372036854775808".to_vec(),
            _ => (self.rng.below(200) as i64 - 100).to_string().into_bytes(),
        }
    }

    /// A place in a value, from either end.
    fn place(&mut self) -> Vec<u8> {
        match self.rng.below(12) {
            0 => b"x".to_vec(),
            1 => b"-1".to_vec(),
            _ => (self.rng.below(9000) as i64 - 300).to_string().into_bytes(),
        }
    }

    /// Far enough away not to come up during the test, or already past.
    fn lifetime(&mut self) -> Vec<u8> {
        match self.rng.below(10) {
            0 => b"0".to_vec(),
            1 => b"-1".to_vec(),
            2 => b"soon".to_vec(),
            _ => self.rng.between(1000, 100_000).to_string().into_bytes(),
        }
    }

    fn step(&mut self) -> Vec<Vec<u8>> {
        let word = |text: &str| text.as_bytes().to_vec();
        let name = *self.rng.pick(&[
            "GET",
            "GET",
            "GET",
            "SET",
            "SET",
            "SET",
            "SETNX",
            "SETEX",
            "GETSET",
            "GETDEL",
            "MGET",
            "MSET",
            "DEL",
            "UNLINK",
            "EXISTS",
            "STRLEN",
            "APPEND",
            "INCR",
            "DECR",
            "INCRBY",
            "INCRBYFLOAT",
            "INCRBYFLOAT",
            "DECRBY",
            "EXPIRE",
            "PEXPIRE",
            "EXPIREAT",
            "EXPIRETIME",
            "PSETEX",
            "GETEX",
            "GETRANGE",
            "SETRANGE",
            "SETBIT",
            "GETBIT",
            "BITCOUNT",
            "BITPOS",
            "BITOP",
            "BITFIELD",
            "TOUCH",
            "MSETNX",
            "RENAMENX",
            "COPY",
            "TTL",
            "PTTL",
            "PERSIST",
            "TYPE",
            "RENAME",
            "DBSIZE",
            "(any arguments)",
        ]);
        let mut request = vec![word(name)];
        match name {
            "GET" | "GETDEL" | "STRLEN" | "INCR" | "DECR" | "TTL" | "PTTL" | "PERSIST" | "TYPE"
            | "EXPIRETIME" => {
                request.push(self.key());
            }
            "SET" => {
                request.extend([self.key(), self.value()]);
                if self.rng.one_in(3) {
                    let option = *self.rng.pick(&["NX", "XX", "GET", "KEEPTTL", "xx", "Get"]);
                    request.push(word(option));
                }
                if self.rng.one_in(4) {
                    let option = *self.rng.pick(&["EX", "PX"]);
                    let lifetime = self.rng.between(100_000, 200_000).to_string();
                    request.extend([word(option), lifetime.into_bytes()]);
                }
            }
            "SETNX" | "GETSET" | "APPEND" => request.extend([self.key(), self.value()]),
            "SETEX" | "PSETEX" => request.extend([self.key(), self.lifetime(), self.value()]),
            "INCRBYFLOAT" => {
                let number = (self.rng.below(2_000_000) as f64 - 1e6) / 1e3;
                let text = match self.rng.below(8) {
                    0 => "x".to_owned(),
                    1 => format!("{number}e{}", self.rng.below(40) as i64 - 20),
                    _ => number.to_string(),
                };
                request.extend([self.key(), text.into_bytes()]);
            }
            "INCRBY" | "DECRBY" => request.extend([self.key(), self.amount()]),
            "EXPIRE" => request.extend([self.key(), self.lifetime()]),
            "PEXPIRE" => request.extend([self.key(), b"500000".to_vec()]),
            "EXPIREAT" => {
                let at = *self.rng.pick(&["1", "4102444800", "4102444801"]);
                request.extend([self.key(), word(at)]);
            }
            "GETEX" => {
                request.push(self.key());
                match self.rng.below(4) {
                    0 => request.push(word("PERSIST")),
                    1 => request.extend([word("EX"), self.lifetime()]),
                    2 => request.extend([word("PXAT"), word("4102444800000")]),
                    _ => {}
                }
            }
            "BITOP" => {
                let operation = *self.rng.pick(&["AND", "or", "XOR", "NOT"]);
                request.extend([word(operation), self.tagged(), self.tagged()]);
                if operation != "NOT" {
                    request.push(self.tagged());
                }
            }
            "BITFIELD" => {
                request.push(self.key());
                for _ in 0..self.rng.below(4) {
                    let how = *self.rng.pick(&["WRAP", "SAT", "FAIL"]);
                    let sign = *self.rng.pick(&["i", "u"]);
                    let kind = format!("{sign}{}", self.rng.between(1, 64));
                    let place = *self.rng.pick(&["0", "7", "100", "#3", "#70"]);
                    request.extend([word("OVERFLOW"), word(how)]);
                    match self.rng.below(3) {
                        0 => request.extend([word("GET"), word(&kind), word(place)]),
                        1 => request.extend([word("SET"), word(&kind), word(place), self.amount()]),
                        _ => request.extend([
                            word("INCRBY"),
                            word(&kind),
                            word(place),
                            self.amount(),
                        ]),
                    }
                }
            }
            "GETRANGE" => request.extend([self.key(), self.place(), self.place()]),
            "SETRANGE" => request.extend([self.key(), self.place(), self.value()]),
            "SETBIT" => {
                let bit = self.rng.below(2).to_string().into_bytes();
                request.extend([self.key(), self.place(), bit]);
            }
            "GETBIT" => request.extend([self.key(), self.place()]),
            "BITCOUNT" | "BITPOS" => {
                request.push(self.key());
                if name == "BITPOS" {
                    request.push(self.rng.below(2).to_string().into_bytes());
                }
                // Errors about these come before or behind the look at the key, as servers' versions differ.
                let end = |rng: &mut Rng| (rng.below(9000) as i64 - 300).to_string().into_bytes();
                match self.rng.below(3) {
                    0 => {}
                    1 => request.extend([end(&mut self.rng), end(&mut self.rng)]),
                    _ => {
                        let unit = *self.rng.pick(&["BYTE", "bit"]);
                        request.extend([end(&mut self.rng), end(&mut self.rng), word(unit)]);
                    }
                }
            }
            "MGET" | "DEL" | "UNLINK" | "EXISTS" | "TOUCH" => {
                for _ in 0..self.rng.between(1, 6) {
                    request.push(self.key());
                }
            }
            "MSET" => {
                for _ in 0..self.rng.between(1, 5) {
                    request.extend([self.key(), self.value()]);
                }
            }
            "MSETNX" => {
                for _ in 0..self.rng.between(1, 3) {
                    request.extend([self.tagged(), self.value()]);
                }
            }
            "RENAME" | "RENAMENX" => request.extend([self.tagged(), self.tagged()]),
            "COPY" => {
                request.extend([self.tagged(), self.tagged()]);
                if self.rng.one_in(2) {
                    request.push(word("REPLACE"));
                }
            }
            "(any arguments)" => {
                let name = *self.rng.pick(&["get", "NOSUCH", "setnx", "MSET", "Ttl"]);
                request[0] = word(name);
                for _ in 0..self.rng.below(4) {
                    request.push(self.key());
                }
            }
            _ => {}
        }
        if request.len() == 1 && name != "DBSIZE" && !self.rng.one_in(4) {
            request.push(self.key());
        }
        request
    }
}
