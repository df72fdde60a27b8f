//! What is right: the convolution as engines round it, and the recurrence in f64, token by token.

use super::problem::{Conv, D, Form, LOWER_BOUND, Problem, SLOTS};

/// u and o of an item, a row a token.
pub(super) type Rows = (Vec<[f64; D]>, Vec<[f64; D]>);

impl Problem {
    /// First token and tokens of a request, none if its offsets are none of the batch; at most a window.
    pub(super) fn span(&self, request: usize) -> (usize, usize) {
        let (begin, end) = (self.starts[request], self.starts[request + 1]);
        let sound = 0 <= begin && begin <= end && end <= self.total as i32;
        if sound { (begin as usize, ((end - begin) as usize).min(self.form.window)) } else { (0, 0) }
    }

    pub(super) fn is_live(&self, request: usize) -> bool {
        let slot = self.slots[request];
        self.form.null < slot && slot < SLOTS as i32
    }

    /// Which head of a row of `qkv` is the q, k or v of a head.
    pub(super) fn head_of(&self, x: usize, head: usize) -> usize {
        let Form { heads, per_key_head, .. } = self.form;
        if x < 2 { x * heads / per_key_head + head / per_key_head } else { 2 * heads / per_key_head + head }
    }

    /// Where a row of a history lies.
    pub(super) fn history(&self, slot: usize, row: usize, x: usize, head: usize, c: usize) -> usize {
        match self.form.conv {
            Conv::ChannelMajor => self.conv.place(&[slot, x, head, c, row]),
            _ => self.conv.place(&[slot, row, x, head, c]),
        }
    }

    /// Raw input of the convolution: `row` counts from the first row of the history.
    pub(super) fn raw(&self, request: usize, row: usize, x: usize, head: usize, c: usize) -> u16 {
        match row.checked_sub(3) {
            Some(t) => self.qkv.at(&[self.span(request).0 + t, self.head_of(x, head), c]),
            None => {
                let first = self.accepted[request].clamp(1, self.form.window as i32) as usize - 1;
                self.conv.memory[self.history(self.slots[request] as usize, first + row, x, head, c)]
            }
        }
    }

    /// A channel of q, k or v behind convolution and SiLU, and whether its rounding is nearly a tie.
    pub(super) fn post(&self, request: usize, t: usize, x: usize, head: usize, c: usize) -> (u16, bool) {
        if self.form.conv == Conv::None {
            return (self.qkv.at(&[self.span(request).0 + t, self.head_of(x, head), c]), false);
        }
        let mut sum = 0.0f32;
        for i in 0..4 {
            let value = wide(self.raw(request, t + i, x, head, c)) as f32;
            let tap = self.taps[((x * self.form.heads + head) * D + c) * 4 + i];
            sum = match (self.form.f32_taps, i) {
                (true, 0) => value * tap,
                (true, _) => value.mul_add(tap, sum),
                (false, _) => sum + wide(rounded((value * tap).into())) as f32,
            };
        }
        let y = f64::from(sum) / (1.0 + (-f64::from(sum)).exp());
        (rounded(y), rounded(y * (1.0 + 1e-6)) != rounded(y * (1.0 - 1e-6)))
    }

    /// u and o of an item by the recurrence, token by token.
    pub(super) fn recurrence(&self, request: usize, head: usize) -> Rows {
        let slot = self.slots[request] as usize;
        let from = self.state.place(&[slot, head, 0, 0]);
        let mut state: Vec<f64> = self.state.memory[from..from + D * D].iter().map(|x| f64::from(*x)).collect();
        let (mut us, mut os) = (Vec::new(), Vec::new());
        let rate = f64::from(self.a_log[head]).exp();
        let (begin, length) = self.span(request);
        for t in 0..length {
            let part = |x: usize| -> Vec<f64> { (0..D).map(|c| wide(self.post(request, t, x, head, c).0)).collect() };
            let (mut q, mut k, v) = (part(0), part(1), part(2));
            for (x, scale) in [(&mut q, (D as f64).sqrt().recip()), (&mut k, 1.0)] {
                let norm = scale / (x.iter().map(|x| x * x).sum::<f64>() + 1e-6).sqrt();
                x.iter_mut().for_each(|x| *x *= norm);
            }
            let beta = 1.0 / (1.0 + (-wide(self.beta.at(&[begin + t, head]))).exp());
            for c in 0..D {
                let z = wide(self.gate.at(&[begin + t, head, c])) + f64::from(self.bias[head * D + c]);
                let log = match self.form.softplus {
                    true => -rate * (z.max(0.0) + (-z.abs()).exp().ln_1p()),
                    false => f64::from(LOWER_BOUND) / (1.0 + (-rate * z).exp()),
                };
                (0..D).for_each(|row| state[row * D + c] *= log.exp());
            }
            let (mut u, mut o) = ([0.0; D], [0.0; D]);
            for row in 0..D {
                let line = &mut state[row * D..(row + 1) * D];
                u[row] = beta * (v[row] - line.iter().zip(&k).map(|(s, k)| s * k).sum::<f64>());
                line.iter_mut().zip(&k).for_each(|(s, k)| *s += u[row] * k);
                o[row] = line.iter().zip(&q).map(|(s, q)| s * q).sum();
            }
            us.push(u);
            os.push(o);
        }
        (us, os)
    }
}

/// Rounded to bf16, ties to even.
pub(super) fn rounded(x: f64) -> u16 {
    let bits = (x as f32).to_bits();
    ((bits + 0x7fff + (bits >> 16 & 1)) >> 16) as u16
}

pub(super) fn wide(bits: u16) -> f64 {
    f32::from_bits(u32::from(bits) << 16).into()
}
