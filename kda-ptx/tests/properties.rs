//! Properties of the table: every instruction survives printing and parsing, and no text makes the parser panic.

use kda_core::{Arch, IsaVersion};
use kda_ptx::module::{Bounds, Entry, Module, Statement};
use kda_ptx::operand::PredSrc;
use kda_ptx::sample::Sample as _;
use kda_ptx::table::{Inst, ROWS};
use proptest::prelude::*;

/// An instruction of a row from a list of numbers, read round and round.
fn instruction(row: usize, choices: &[u32]) -> (Option<PredSrc>, Inst) {
    let mut at = 0;
    let mut choose = |bound: usize| {
        at += 1;
        // The position takes part, so that a short list does not repeat one operand.
        (choices[at % choices.len()] as usize ^ at.wrapping_mul(0x9e37_79b9) >> 7) % bound
    };
    let guard = Option::<PredSrc>::sample(&mut choose);
    (guard, (ROWS[row % ROWS.len()].sample)(&mut choose))
}

fn module(statements: Vec<Statement>) -> Module {
    let bounds = Bounds::default();
    let entry = Entry { name: "k".to_string(), params: Vec::new(), bounds, registers: [0; 5], body: statements };
    Module { isa: IsaVersion::new(8, 0), arch: Arch::SM_90, files: Vec::new(), shared: None, entries: vec![entry] }
}

/// `mov` of a list of one is text of a plain `mov`: the only instructions that another row's text covers.
fn is_single_list(inst: &Inst) -> bool {
    match inst {
        Inst::Unpack(i) => i.dst.0.len() == 1,
        Inst::Pack(i) => i.src.0.len() == 1,
        _ => false,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn instructions_survive_print_and_parse(row in 0..ROWS.len(), choices in prop::collection::vec(any::<u32>(), 1..40)) {
        let (guard, inst) = instruction(row, &choices);
        prop_assume!(!is_single_list(&inst));
        let module = module(vec![Statement::Inst { guard, inst }]);
        let text = module.to_string();
        let parsed = kda_ptx::parse(&text);
        prop_assert_eq!(parsed.as_ref(), Ok(&module), "{}", text);
    }

    #[test]
    fn mutated_text_never_panics(
        rows in prop::collection::vec((0..ROWS.len(), prop::collection::vec(any::<u32>(), 1..20)), 0..6),
        edits in prop::collection::vec((any::<prop::sample::Index>(), 0..4u8, any::<char>(), any::<prop::sample::Index>()), 1..12),
    ) {
        let statements = rows.iter().map(|(row, choices)| {
            let (guard, inst) = instruction(*row, choices);
            Statement::Inst { guard, inst }
        });
        let mut characters: Vec<char> = module(statements.collect()).to_string().chars().collect();
        const LIKELY: &[char] = &['.', ',', '{', '}', '[', ']', '%', '@', '!', '_', '-', '+', '0', '9', '"', ';', ':', '\n', ' ', '/'];
        for (at, edit, character, other) in edits {
            if characters.is_empty() {
                break;
            }
            let at = at.index(characters.len());
            match edit {
                0 => { characters.remove(at); }
                1 => characters.insert(at, *other.get(LIKELY)),
                2 => characters[at] = character,
                _ => {
                    // A piece of the text once more.
                    let from = other.index(characters.len());
                    let piece: Vec<char> = characters[from..(from + 20).min(characters.len())].to_vec();
                    characters.splice(at..at, piece);
                }
            }
        }
        let text: String = characters.into_iter().collect();
        if let Err(error) = kda_ptx::parse(&text) {
            let lines = text.lines().count() as u32 + 1;
            prop_assert!(error.line >= 1 && error.line <= lines, "{} in {:?}", error, text);
            prop_assert!(!error.message.is_empty());
        }
    }
}

#[test]
fn every_row_is_sampled_and_parsed_back() {
    for (row, entry) in ROWS.iter().enumerate() {
        let mut seen = 0;
        for seed in 0..200u32 {
            let choices: Vec<u32> =
                (0..16).map(|i| (seed * 16 + i).wrapping_mul(2_654_435_761).rotate_left(seed % 31)).collect();
            let (guard, inst) = instruction(row, &choices);
            if is_single_list(&inst) {
                continue;
            }
            let module = module(vec![Statement::Inst { guard, inst }]);
            let text = module.to_string();
            assert_eq!(kda_ptx::parse(&text).as_ref(), Ok(&module), "row {}, seed {seed}:\n{text}", entry.name);
            seen += 1;
        }
        assert!(seen > 50, "{}: only {seen}", entry.name);
    }
}
