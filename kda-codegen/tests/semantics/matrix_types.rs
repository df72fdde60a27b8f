//! Types of matrices and views in device functions: checked, and generics follow from them.

use super::harness::{Run, error_of};

fn kernel(items: &str, body: &str) -> String {
    format!(
        "#[kernels(arch = sm_90a)]
mod family {{
    {items}
    #[kernel(block = 128, grid = 1)]
    fn k(#[dims(16, 8)] x: Global<f32>, #[dims(64, 64)] y: GlobalMut<f32>) {{
        let t = smem::<bf16, Shape<64, 64>, Swizzle<128>>();
        let plain = smem::<f32, Shape<16, 8>>();
        let f = Frag::<f32, 16, 8>::load(x);
        let acc = Acc::<f32, 64, 32>::zero();
        {body}
    }}
}}"
    )
}

#[test]
fn generics_follow_from_matrices() {
    for (items, body, expected) in [
        ("#[device] fn f<const M: u32, const N: u32>(a: Frag<f32, M, N>) -> u32 { 100 * M + N }", "f(f)", 1608),
        (
            "#[device] fn f<T: Elem, const N: u32>(a: Frag<T, 16, N>) -> u32 { size_of::<T>() + N }",
            "f(f.round::<bf16>())",
            10,
        ),
        ("#[device] fn f<const M: u32, const N: u32>(a: Acc<f32, M, N>) -> u32 { 100 * M + N }", "f(acc)", 6432),
        (
            "#[device] fn f<T: Elem, const M: u32, const N: u32>(a: Tile<T, Shape<M, N>>) -> u32 { 100 * M + N + size_of::<T>() }",
            "f(t.columns(0..16).rows(0..32)) + f(plain)",
            3218 + 1612,
        ),
        ("#[device] fn f<T: Elem, const N: u32>(a: Shared<T, Shape<N>>) -> u32 { N }", "f(plain.at([3]))", 8),
        ("#[device] fn f<T: Elem>(a: Global<T>, b: Global<f32, Shape<16, _>>) -> u32 { size_of::<T>() }", "f(y, x)", 4),
        ("#[device] fn f<const N: u32>(a: (Frag<f32, 16, N>, [u32; N])) -> u32 { N }", "f((f, [1; 8]))", 8),
        (
            "#[device] fn f<const N: u32>(a: &mut Frag<f32, _, N>) -> u32 { a = a + a; N }",
            "{ let mut g = f; f(&mut g) }",
            8,
        ),
    ] {
        let mut run = Run::new(&kernel(items, &format!("y.at([tid / 32, lane]).store(({body}) as f32);")));
        run.tensor("x", &[0.0f32; 128]).tensor("y", &[0.0f32; 4096]).launch(1);
        assert_eq!(run.read::<f32>("y")[0], expected as f32, "{items} {body}");
    }
}

#[test]
fn matrices_have_the_declared_type() {
    for (parameter, argument) in [
        ("Frag<f32, 8, 8>", "f"),
        ("Frag<bf16, 16, 8>", "f"),
        ("Frag<tf32, 16, 8>", "f"),
        ("Frag<f32, 16>", "f"),
        ("Acc<f32, 16, 8>", "f"),
        ("f32", "f"),
        ("Acc<f32, 64, 64>", "acc"),
        ("Acc<f32, 64, 64>", "acc.columns(0..8)"),
        ("Frag<f32, 64, 32>", "acc"),
        ("Tile<f32>", "t"),
        ("Tile<bf16, Shape<64, 32>>", "t"),
        ("Tile<bf16, Shape<64>>", "t"),
        ("Shared<bf16>", "t"),
        ("Tile<f32, Shape<8, 16>>", "plain"),
        ("Global<bf16>", "x"),
        ("Shared<f32>", "x"),
    ] {
        let items = format!("#[device] fn f(a: {parameter}) {{ }}");
        assert_eq!(error_of(&kernel(&items, &format!("f({argument});"))), 160, "{parameter} {argument}");
    }
    for (parameter, argument) in [
        ("Frag<f32, 16, 8>", "f"),
        ("Frag<tf32, 16, 8>", "f.round::<tf32>()"),
        ("Frag", "f"),
        ("_", "f"),
        ("Acc<_, 64, _>", "acc"),
        ("Tile<bf16, Shape<64, 64>, Swizzle<128>>", "t"),
        ("Tile<bf16, _>", "t"),
        ("Tile<f32>", "plain"),
        ("Shared<f32, Shape<16, 8>>", "plain"),
        ("Global<f32>", "y"),
    ] {
        let items = format!("#[device] fn f(a: {parameter}) {{ }}");
        let body = format!("f({argument}); y.at([0, 0]).store_if(tid == 0, x[[0, 0]]);");
        Run::new(&kernel(&items, &body));
    }
    let two = "#[device] fn f<const N: u32>(a: Frag<f32, 16, N>, b: Frag<f32, N, N>) { }";
    assert_eq!(error_of(&kernel(two, "f(f, f);")), 160);
    assert_eq!(error_of(&kernel("", "let g: Frag<f32, 8, 8> = f;")), 160);
}
