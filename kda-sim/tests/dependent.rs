//! Dependent launch: what a grid accesses before it has waited for the grid ahead.

mod common;
use common::Bench;
use kda_sim::Code;

/// Memory that the grid ahead may still be writing is left alone until the wait, or until a barrier behind another warp's.
#[test]
fn unsettled_memory_is_waited_for() {
    let early = |body: &str, unsettled: bool| {
        let mut b = Bench::new(&["x", "y"], body).block(64);
        let (x, y) = (b.buffer(&[0; 4]), b.buffer(&[0; 256]));
        b.memory.depend(&[x][..usize::from(unsettled)]);
        let code = b.run().map_err(|report| report.code);
        let accessed = [x, y].map(|ptr| b.memory.allocation_of(ptr).unwrap().early);
        // The next launch depends on nobody.
        assert!(b.run().is_ok());
        (code.err(), accessed)
    };
    let load = "    ld.param.u64 %rd0, [x];\n    WAIT\n    ld.global.u32 %r0, [%rd0];";
    let wait = load.replace("WAIT", "griddepcontrol.wait;");
    let none = load.replace("WAIT", "");
    assert_eq!(early(&none, true), (Some(Code::Race), [true, false]));
    assert_eq!(early(&none, false), (None, [true, false]));
    assert_eq!(early(&wait, true), (None, [false, false]));
    // One warp waits, and the others meet it.
    let one = "mov.u32 %r1, %tid.x;\n    setp.lt.u32 %p0, %r1, 32;\n    @%p0 griddepcontrol.wait;\n    bar.sync 0;";
    assert_eq!(early(&load.replace("WAIT", one), true), (None, [false, false]));
    assert_eq!(early(&load.replace("WAIT", &one.replace("bar.sync 0;", "")), true), (Some(Code::Race), [true, false]));
    for access in ["st.global.u32 [%rd0], 1;", "atom.relaxed.gpu.global.add.u32 %r0, [%rd0], 1;"] {
        let lane = "mov.u32 %r1, %tid.x;\n    setp.eq.u32 %p0, %r1, 0;\n    @%p0 ";
        let body = none.replace("ld.global.u32 %r0, [%rd0];", &format!("{lane}{access}"));
        assert_eq!(early(&body, true), (Some(Code::Race), [true, false]), "{access}");
    }
}
