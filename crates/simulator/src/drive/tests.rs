use coquina_engine::Device;

use super::*;

fn drive(seed: u64) -> VirtualDrive {
    VirtualDrive::new(1 << 20, Latency::default(), Random::new(seed))
}

fn block_of(byte: u8) -> AlignedBuf {
    let mut buffer = AlignedBuf::zeroed(1);
    buffer.fill(byte);
    buffer
}

fn write(drive: &mut VirtualDrive, io: u64, offset_bytes: u64, byte: u8) {
    let action = Action::Write { io: IoToken(io), offset_bytes, buffer: block_of(byte) };
    assert!(drive.submit(0, 0, action).is_none());
}

fn finish_all(drive: &mut VirtualDrive) -> Vec<u64> {
    std::iter::from_fn(|| drive.complete_next(u64::MAX - 1)).map(|done| done.io.0).collect()
}

#[test]
fn completed_write_survives_a_cut() {
    let mut drive = drive(1);
    write(&mut drive, 1, 4096, 7);
    assert_eq!(finish_all(&mut drive), vec![1]);
    assert_eq!(drive.power_cut(), CutSummary::default());
    assert!(drive.bytes()[4096..8192].iter().all(|byte| *byte == 7));
}

#[test]
fn writes_in_flight_are_lost_applied_torn_and_reordered() {
    let (mut lost, mut applied, mut torn, mut reordered) = (0, 0, 0, 0);
    for seed in 0..200 {
        let mut drive = drive(seed);
        (0..4).for_each(|io| write(&mut drive, io, io * 4096, 9));
        let summary = drive.power_cut();
        assert_eq!(summary.lost + summary.applied + summary.torn, 4);
        lost += summary.lost;
        applied += summary.applied;
        torn += summary.torn;
        reordered += u64::from(summary.reordered);
        let nines = drive.bytes().chunks(512).filter(|sector| sector.iter().all(|byte| *byte == 9)).count();
        let zeros = drive.bytes().chunks(512).filter(|sector| sector.iter().all(|byte| *byte == 0)).count();
        assert_eq!(nines + zeros, 2048, "sectors are never half written");
    }
    assert!(
        lost > 100 && applied > 100 && torn > 100 && reordered > 20,
        "{lost} {applied} {torn} {reordered}"
    );
}

#[test]
fn completions_come_out_of_order_and_repeatably() {
    let order = |seed| {
        let mut drive = drive(seed);
        (0..16).for_each(|io| write(&mut drive, io, io * 4096, 1));
        finish_all(&mut drive)
    };
    assert_eq!(order(3), order(3));
    assert_ne!(order(3), order(4));
    assert_ne!(order(3), (0..16).collect::<Vec<_>>());
}

#[test]
fn zeros_written_ahead_may_be_taken_back_until_a_sync() {
    let mut taken_back = 0;
    for seed in 0..50 {
        for synced in [false, true] {
            let mut drive = drive(seed);
            write(&mut drive, 1, 0, 5);
            finish_all(&mut drive);
            drive.submit(0, 0, Action::Prewrite { io: IoToken(2), offset_bytes: 0, length_bytes: 8192 });
            finish_all(&mut drive);
            assert_eq!(drive.bytes()[0], 0, "they are visible at once");
            if synced {
                drive.sync().unwrap();
            }
            drive.power_cut();
            let back = drive.bytes()[..4096].contains(&5);
            assert!(!(back && synced));
            taken_back += u32::from(back);
        }
    }
    assert!(taken_back > 10);
}

#[test]
fn writes_of_a_dead_process_are_visible_but_not_safe() {
    let mut taken_back = 0;
    for seed in 0..100 {
        let mut drive = drive(seed);
        write(&mut drive, 1, 0, 5);
        drive.process_crash();
        let visible = drive.bytes()[..4096].to_vec();
        drive.power_cut();
        taken_back += u32::from(visible != drive.bytes()[..4096]);
    }
    assert!(taken_back > 10, "{taken_back}");
}

#[test]
fn durable_write_over_volatile_zeros_is_safe() {
    for seed in 0..50 {
        let mut drive = drive(seed);
        drive.submit(0, 0, Action::Prewrite { io: IoToken(1), offset_bytes: 0, length_bytes: 8192 });
        finish_all(&mut drive);
        write(&mut drive, 2, 0, 5);
        finish_all(&mut drive);
        drive.power_cut();
        assert!(drive.bytes()[..4096].iter().all(|byte| *byte == 5));
    }
}

#[test]
fn armed_cut_fails_every_later_operation_until_the_restart() {
    let mut drive = drive(1);
    drive.arm_cut(2);
    drive.write(0, &block_of(1)).unwrap();
    assert!(drive.write(4096, &block_of(2)).is_err());
    assert!(drive.read(0, &mut AlignedBuf::zeroed(1)).is_err());
    assert!(drive.sync().is_err());
    assert!(drive.disarm_cut());
    drive.power_cut();
    let mut buffer = AlignedBuf::zeroed(1);
    drive.read(0, &mut buffer).unwrap();
    assert!(buffer.iter().all(|byte| *byte == 1));
}

#[test]
fn ordered_faults_come_about() {
    let mut drive = drive(1);
    drive.faults_mut().fail_reads(4096..8192);
    assert!(drive.read(0, &mut AlignedBuf::zeroed(2)).is_err());
    assert!(drive.read(8192, &mut AlignedBuf::zeroed(1)).is_ok());
    drive.faults_mut().clear();
    assert!(drive.read(0, &mut AlignedBuf::zeroed(2)).is_ok());
    drive.faults_mut().fail_write(2, false, None);
    assert!(drive.write(0, &block_of(1)).is_ok());
    assert!(drive.write(0, &block_of(2)).is_err());
    assert!(drive.write(0, &block_of(3)).is_ok());
    drive.faults_mut().lose_write(1);
    assert!(drive.write(0, &block_of(4)).is_ok());
    let lost_at = |drive: &VirtualDrive| drive.faults().lost.as_ref().map(|(at, _)| *at);
    assert_eq!((drive.bytes()[0], lost_at(&drive)), (3, Some(0)));
    assert!(drive.write(0, &block_of(5)).is_ok());
    assert_eq!(lost_at(&drive), None);
    drive.faults_mut().stall_writes(1, 1);
    write(&mut drive, 1, 0, 6);
    write(&mut drive, 2, 4096, 6);
    assert_eq!(finish_all(&mut drive), vec![2]);
    assert_eq!((drive.next_completion_ns(), drive.is_busy()), (None, true));
    drive.release_stalled(0);
    assert_eq!(finish_all(&mut drive), vec![1]);
}

#[test]
fn a_failed_write_leaves_nothing_some_or_all() {
    let mut seen = [false; 3];
    for seed in 0..100 {
        let mut drive = drive(seed);
        drive.faults_mut().fail_write(1, true, Some(Random::new(seed)));
        assert!(drive.write(0, &block_of(1)).is_err());
        let arrived = drive.bytes()[..BLOCK_BYTES].iter().filter(|byte| **byte == 1).count();
        assert_eq!(drive.faults().writes_landed, u64::from(arrived > 0));
        seen[usize::from(arrived > 0) + usize::from(arrived == BLOCK_BYTES)] = true;
    }
    assert_eq!(seen, [true; 3]);
}
