//! The macros that turn rows into types.

/// Declares modifiers: enums whose variants are pieces of an opcode, with an optional gate each.
macro_rules! modifiers {
    ($( $(#[$doc:meta])* $Name:ident { $( $Variant:ident = $text:literal $(@ $gate:expr)? ),* $(,)? } )*) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $Name { $( #[doc = concat!("`", $text, "`")] $Variant, )* }

        impl $Name {
            /// Every value.
            pub const ALL: &'static [$Name] = &[$( $Name::$Variant, )*];

            /// The piece of the opcode, with its leading dot.
            pub const fn text(self) -> &'static str {
                match self { $( $Name::$Variant => $text, )* }
            }
        }

        impl Modifier for $Name {
            fn print(&self, out: &mut String) { out.push_str(self.text()); }
            fn parse(suffixes: &mut Suffixes<'_>) -> Option<$Name> {
                suffixes.take_longest($Name::ALL.iter().map(|m| (m.text(), *m)))
            }
            #[allow(unreachable_patterns)]
            fn gate(&self) -> Gate {
                match self { $( $( $Name::$Variant => $gate, )? )* _ => Gate::NONE }
            }
        }

        impl Sample for $Name {
            fn sample(choose: &mut dyn FnMut(usize) -> usize) -> $Name { $Name::ALL[choose($Name::ALL.len())] }
        }
    )* };
}

/// Declares flags: modifiers that are there or not.
macro_rules! flags {
    ($( $(#[$doc:meta])* $Name:ident = $text:literal $(@ $gate:expr)? ),* $(,)?) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        pub struct $Name(pub bool);

        impl Modifier for $Name {
            fn print(&self, out: &mut String) { if self.0 { out.push_str($text); } }
            fn parse(suffixes: &mut Suffixes<'_>) -> Option<$Name> {
                Some($Name(suffixes.take_longest([($text, ())]).is_some()))
            }
            #[allow(unreachable_code)]
            fn gate(&self) -> Gate {
                if self.0 { $( return $gate; )? }
                Gate::NONE
            }
        }

        impl Sample for $Name {
            fn sample(choose: &mut dyn FnMut(usize) -> usize) -> $Name { $Name(choose(2) == 1) }
        }
    )* };
}

/// The instruction table. A row is
/// `method: Struct = "mnemonic" [ modifiers ] ( operands ) gate;`
macro_rules! instructions {
    ($( $(#[$doc:meta])* $method:ident : $Name:ident = $mnemonic:literal
        [ $( $m:ident : $M:ty ),* $(,)? ] ( $( $o:ident : $O:ty ),* $(,)? ) $gate:expr; )*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Debug, PartialEq, Eq, Hash)]
            #[allow(missing_docs)]
            pub struct $Name { $( pub $m: $M, )* $( pub $o: $O, )* }

            impl From<$Name> for Inst {
                fn from(inst: $Name) -> Inst { Inst::$Name(inst) }
            }
        )*

        /// An instruction of the table.
        #[derive(Clone, Debug, PartialEq, Eq, Hash)]
        pub enum Inst { $( $(#[$doc])* $Name($Name), )* }

        impl Inst {
            /// The mnemonic of the row.
            pub fn mnemonic(&self) -> &'static str {
                match self { $( Inst::$Name(_) => $mnemonic, )* }
            }

            /// Appends the instruction as PTX, without the guard and the semicolon.
            #[allow(unused_variables, unused_mut, unused_assignments)]
            pub fn print(&self, out: &mut String) {
                match self { $( Inst::$Name(inst) => {
                    out.push_str($mnemonic);
                    $( inst.$m.print(out); )*
                    let mut first = true;
                    $( inst.$o.print_in_list(out, &mut first); )*
                } )* }
            }

            /// What the row and its modifiers need.
            #[allow(unused_variables)]
            pub fn gate(&self) -> Gate {
                match self { $( Inst::$Name(inst) => {
                    let gate: Gate = $gate;
                    $( let gate = gate.and(inst.$m.gate()); )*
                    gate
                } )* }
            }

            /// Calls `visit` with every register and how the instruction uses it.
            #[allow(unused_variables)]
            pub fn registers(&self, visit: &mut dyn FnMut(Reg, Role)) {
                match self { $( Inst::$Name(inst) => { $( inst.$o.registers(visit); )* } )* }
            }

            /// Calls the method of the row.
            pub fn dispatch<S: Semantics + ?Sized>(&self, semantics: &mut S) -> S::Output {
                match self { $( Inst::$Name(inst) => semantics.$method(inst), )* }
            }
        }

        /// One method a row: what implements this covers the table.
        pub trait Semantics {
            /// What a method gives.
            type Output;
            $( $(#[$doc])* fn $method(&mut self, inst: &$Name) -> Self::Output; )*
        }

        /// A row of the table.
        pub struct Row {
            /// Name of the instruction's struct.
            pub name: &'static str,
            /// Mnemonic: the fixed beginning of the opcode.
            pub mnemonic: &'static str,
            /// What the row needs, without modifiers.
            pub gate: Gate,
            /// An instruction of the row, with modifiers and operands as `choose` picks them: see [`crate::sample`].
            pub sample: fn(&mut dyn FnMut(usize) -> usize) -> Inst,
            pub(crate) parse: fn(&mut Suffixes<'_>, &mut Cursor<'_>) -> Result<Option<Inst>, ParseError>,
        }

        /// Every row, in the order of the table.
        pub static ROWS: &[Row] = &[ $( Row {
            name: stringify!($Name),
            mnemonic: $mnemonic,
            gate: $gate,
            sample: |choose| {
                let _ = &choose;
                Inst::$Name($Name { $( $m: <$M as Sample>::sample(choose), )* $( $o: <$O as Sample>::sample(choose), )* })
            },
            #[allow(unused_mut)]
            parse: |suffixes, cursor| {
                $( let Some($m) = <$M as Modifier>::parse(suffixes) else { return Ok(None) }; )*
                if !suffixes.is_empty() { return Ok(None); }
                let mut first = true;
                $( let $o = <$O as Operand>::parse_in_list(cursor, &mut first)?; )*
                let _ = (cursor, first);
                Ok(Some(Inst::$Name($Name { $( $m, )* $( $o, )* })))
            },
        }, )* ];
    };
}

/// Declares the special registers.
macro_rules! special_registers {
    ($( $Variant:ident = $text:literal ),* $(,)?) => {
        /// A special register.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Special { $( #[doc = concat!("`", $text, "`")] $Variant, )* }

        impl Special {
            /// Every special register.
            pub const ALL: &'static [Special] = &[$( Special::$Variant, )*];

            /// Its name.
            pub const fn text(self) -> &'static str {
                match self { $( Special::$Variant => $text, )* }
            }
        }
    };
}
