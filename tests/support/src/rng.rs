//! Reproducible random choices: everything follows from the seed (SplitMix64).

pub struct Rng {
    seed: u64,
    state: u64,
}

impl Rng {
    /// Uses the given seed, or `LOCK_TEST_SEED` to reproduce a failure.
    pub fn new(seed: u64) -> Rng {
        let chosen = std::env::var("LOCK_TEST_SEED").ok();
        Rng::with_seed(chosen.map_or(seed, |seed| seed.parse().expect("LOCK_TEST_SEED is a number")))
    }

    /// Uses exactly this seed, for the threads of a test with a chosen seed.
    pub fn with_seed(seed: u64) -> Rng {
        Rng { seed, state: seed }
    }

    pub fn seed(&self) -> u64 {
        self.seed
    }

    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next_u64() % end as u64).expect("it is below a usize")
    }

    pub fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len())]
    }

    /// True in one of `n` cases.
    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    pub fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| self.next_u64().to_le_bytes()[0]).collect()
    }
}
