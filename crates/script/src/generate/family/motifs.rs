//! The motifs of each family: short runs of operations with holes.
//!
//! `$s` many extents in `$f`, `$f $g` different files, `$d $e` directories, `$p $q` anything that has a name, `$v $w` names that are
//! probably free, `$n` a length and a seed, `$o` an offset, `$m` a mode; `$S $T $U` names of snapshots, `$B $C` of branches.

pub(super) const REPLACE: [&str; 8] = [
    "unlink $f; mkfile $f; write $f 0 $n",
    "mkfile $v; write $v 0 $n; rename $v $f",
    "rename $f $v; mkfile $f; append $f $n",
    "rename $f $g; mkfile $f",
    "rename $f $g exchange; write $f $o $n",
    "unlink $f; link $g $f",
    "rename $f $v; rename $g $f; rename $v $g",
    "open h $f read,write; mkfile $v; rename $v $f; write @h $o $n; fsync @h; close h",
];
pub(super) const THIRD_PARTY: [&str; 6] = [
    "write $f $o $n; fsync $g",
    "rename $f $v; fsync $g",
    "unlink $f; mkfile $v; fsync $v",
    "write $f $o $n; truncate $f 3000; fsyncdir $d",
    "setxattr $f user.a $n; chmod $g $m; fsync $g",
    "append $f $n; append $g $n; fdatasync $g",
];
pub(super) const MOVE_OUT: [&str; 6] = [
    "rename $f $v; fsyncdir $d",
    "mkdir $v; rename $f $v/a; fsyncdir $v",
    "rename $d $v; mkdir $d; fsyncdir $d",
    "rename $d $v; mkfile $w; fsync $w",
    "rename $p $v; rename $q $p",
    "rename $d $e exchange; fsyncdir $d",
];
pub(super) const WEAKEN: [&str; 8] = [
    "write $f $o $n; fsync $f; link $f $v; fsyncdir /",
    "truncate $f 0; fsync $f; link $f $v; fsync $v",
    "chmod $f $m; fsync $f; link $f $v; fsyncdir /",
    "write $f $o $n; fsync $f; rename $f $v; fsyncdir /",
    "setxattr $f user.a $n; fsync $f; removexattr $f user.a; fdatasync $f",
    "append $f $n; fsync $f; append $f $n; fdatasync $g",
    "truncate $f 9000; fsync $f; truncate $f 100; write $f 5000 $n; chmod $f $m; fsync $g",
    "write $f 0 $n; fdatasync $f; utimes $f 5 6; chown $f 5 6; fsyncdir $d",
];
pub(super) const FORGET: [&str; 6] = [
    "stat $f; stat $g; unlink $f; fsyncdir $d",
    "fsync $f; evict; stat $g; rename $f $v; fsync $g",
    "fsync $f; ls $d; ls $e; sum $g; unlink $f; mkfile $f; fsync $f",
    "write $f $o $n; evict; sum $g; fsync $f",
    "remount; rename $f $v; fsyncdir /",
    "link $f $v; fsync $f; evict; ls $d; unlink $v; fsync $f",
];
pub(super) const NEW_ANCESTORS: [&str; 6] = [
    "mkdir $v; mkdir $v/a; mkfile $v/a/b; fsync $v/a/b",
    "mkdir $v; mkfile $v/a; rename $v $w; fsync $w/a",
    "mkdir $v; rename $f $v/a; fsync $v/a",
    "mkdir $v; rename $d $v/a; fsyncdir $v/a",
    "mkdir $v; link $f $v/a; fsync $f",
    "mkdir $v; mkdir $w; mkfile $v/a; link $v/a $w/a; fsync $w/a",
];
pub(super) const TYPE_CHANGE: [&str; 6] = [
    "unlink $f; mkdir $f; fsyncdir $f",
    "unlink $f; mkdir $f; mkfile $f/a; fsync $f/a; unlink $f/a; rmdir $f; mkfile $f; fsync $f",
    "unlink $f; symlink $g $f; fsyncdir /",
    "rename $f $v; mkdir $f; rename $v $f/a; fsync $f/a",
    "rename $d $v; mkfile $d; write $d 0 $n; fsync $d",
    "mkdir $v; rmdir $v; mkfile $v; append $v $n; fsync $v",
];
pub(super) const HARD_LINKS: [&str; 8] = [
    "link $f $v; unlink $f; fsync $v",
    "link $f $v; link $f $w; unlink $v; fsync $w",
    "link $f $v; rename $v $f; fsync $f",
    "link $f $v; write $f $o $n; fsync $v",
    "tmpfile t $d; write @t 0 $n; link @t $v; fsync @t; close t",
    "open h $f read,write; unlink $f; write @h $o $n; fsync @h; close h",
    "link $f $v; unlink $f; mkfile $f; fsync $f",
    "link $f $v; rename $f $w; fsyncdir /; rename $v $w",
];
pub(super) const REUSE: [&str; 6] = [
    "write $f 0 $n; fsync $f; unlink $f; mkfile $v; write $v 0 $n; fsync $v",
    "truncate $f 0; fsync $f; write $g $o $n; fsync $g",
    "punch $f 0 16k; fsync $f; append $g $n; fsync $g",
    "write $f $o $n; sync; write $f $o $n; fsync $f",
    "write $f 0 $n; write $f 0 $n; fsync $f; write $f 0 $n; fsync $f",
    "zero $f $o 5000; fallocate $g 0 20k; write $g 4096 $n; fsync $g",
];

pub(super) const HOLES: [&str; 8] = [
    "$s; fsync $f; punch $f 100 600k; fsync $g",
    "$s; fsync $f; zero $f 5000 600k; fsync $g; append $f $n; fsync $f",
    "$s; fsync $g; zero $f 3000 300k keep; fsync $g; punch $f 0 700k; fsync $g",
    "$s; punch $f 8192 600k; truncate $f 9000; fsync $g",
    "fallocate $f 0 80k; punch $f 4096 8192; zero $f 20k 9000; fsync $f",
    "fallocate $f 4096 40k keep; write $f $o $n; fsync $g; punch $f $o 9000; fsync $f",
    "write $f 0 $n; fsync $f; zero $f $o 9000; write $f $o $n; fsync $g",
    "write $f $o $n; zero $f 50 30000 keep; fsync $f; rename $f $v; fsync $v",
];
pub(super) const RESERVED: [&str; 9] = [
    "fallocate $f 0 100k; write $f $o $n; fsync $f; write $f 50k $n; fsync $g",
    "write $f 20k $n; fsync $f; write $f 24k $n; fdatasync $f",
    "write $f 60k $n; write $g 60k $n; fsync $f; fsync $g",
    "zero $f 0 40k keep; write $f $o $n; fsync $f",
    "write $f 8192 $n; zero $f 0 30k keep; write $f 8192 $n; fsync $g; fsync $f",
    "write $f 100k $n; fsync $f; zero $f 90k 50k; fsync $f; write $f 100k $n; fsync $f",
    "write $f 64k $n; punch $f 60k 30k; fallocate $f 60k 30k; write $f 70k $n; fsync $f",
    "write $f 30k $n; truncate $f 35k; fallocate $f 0 80k keep; write $f 40k $n; fsync $f",
    "open h $f read,write; write @h 70k $n; unlink $g; sync; write @h 120k $n; fsync @h; close h",
];
pub(super) const BRANCHES: [&str; 18] = [
    // Removed from the oldest, the newest and the middle on.
    "snapshot $S; write $f $o $n; fsync $f; rmsnapshot $S",
    "snapshot $S; unlink $f; snapshot $T; append $g $n; rmsnapshot $S; fsync $g",
    "snapshot $S; write $f 0 $n; snapshot $T; write $f 0 $n; rmsnapshot $T; fsync $f",
    "snapshot $S; append $f $n; snapshot $T; truncate $f 100; snapshot $U; rmsnapshot $T; fsync $f",
    "snapshot $S; write $f 0 $n; snapshot $T; write $f 0 $n; snapshot $U; rmsnapshot $S; rmsnapshot $T; fsyncdir /",
    // Branches side by side.
    "fork $B; write $f $o $n; switch $B; write $f $o $n; fsync $f; switch main; fsync $f",
    "snapshot $S; fork $B $S; switch $B; unlink $f; fsyncdir /; switch main; rmsnapshot $S; rmbranch $B",
    "snapshot $S; fork $B $S; fork $C $S; rmsnapshot $S; rmbranch $B; switch $C; append $f $n; fsync $f; switch main",
    "fork $B; switch $B; rename $d $v; snapshot $S; fork $C $S; switch main; mkfile $w; fsync $w; switch $C; fsyncdir /; switch main",
    "fork $B; switch $B; write $f 0 $n; switch main; write $f 0 $n; sync; rmbranch $B; write $f 0 $n; fsync $f",
    // Back to what was.
    "snapshot $S; write $f 0 $n; rename $g $v; rollback $S $T; append $f $n; fsync $f; rmsnapshot $T",
    "snapshot $S; write $f 0 $n; rollback $S; fsync $f; write $f 0 $n; rmsnapshot $S",
    "snapshot $S; mkfile $v; write $v 0 $n; rollback $S $T; fork $B $T; rollback $T; rmsnapshot $T; rmsnapshot $S",
    // Blocks that a snapshot has too.
    "fallocate $f 0 60k; snapshot $S; write $f 4096 $n; fsync $f; rmsnapshot $S; write $f 20k $n; fsync $f",
    "write $f 0 $n; snapshot $S; punch $f 0 8192; append $g $n; rmsnapshot $S; write $g 0 $n; fsync $g",
    "$s; snapshot $S; punch $f 100 600k; fsync $g; rmsnapshot $S; zero $f 5000 300k; fsync $f",
    "snapshot $S; mkfile $v; write $v 0 $n; rename $v $f; rmsnapshot $S; mkfile $v; fsync $v",
    // What a snapshot does not show.
    "open h $f read,write; write @h $o $n; unlink $f; snapshot $S; write @h $o $n; fork $B $S; fsync @h; close h",
];
pub(super) const SHIFTS: [&str; 10] = [
    "write $f 0 20000 6; collapse $f 4096 8192; fsync $g",
    "write $f $o $n; insert $f 0 8192; fsync $f; write $f 4096 $n",
    "write $f 0 60000 7; fsync $f; collapse $f 0 16k; fsync $g; append $f $n; fsync $f",
    "$s; fsync $g; collapse $f 8192 200k; fsync $f; insert $f 4096 40k; fsync $g",
    "$s; insert $f 16k 4096; punch $f 0 300k; fsync $g",
    "write $f 0 40000 8; snapshot $S; collapse $f 4096 4096; fsync $f; rmsnapshot $S; write $g 0 $n; fsync $g",
    "write $f 0 40000 9; fsync $f; snapshot $S; insert $f 8192 12k; rmsnapshot $S; append $g $n; fsync $g; unlink $f",
    "fallocate $f 0 100k; write $f 20k $n; collapse $f 8192 8192; write $f 40k $n; fsync $f",
    "append $f $n; insert $f 0 4096; truncate $f 5000; append $f $n; fsync $f; collapse $f 0 4096; fsync $g",
    "write $f 0 50000 10; snapshot $S; collapse $f 0 4096; collapse $f 0 4096; rollback $S; fsync $f",
];
