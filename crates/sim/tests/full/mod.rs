//! Scripts on a volume that is full, about what its files have reserved. Each begins with an append that finds no end of
//! room: nothing else is refused.

/// `/r` is reserved all over, `/z` has data, `/gap` some that can be given back, `/fill` the rest.
pub(crate) const BEFORE: &str = "mkfile /r; fallocate /r 0 600k; mkfile /z; write /z 0 200k 1; mkfile /gap; write /gap 0 128k 2; \
    mkfile /x; mkfile /y; mkfile /fill; write /fill 0 8M 3; sync; append /fill 8M 4; sync; append /fill 1M 5; sync";

/// Never written before; made zeros by an operation that no commit contains; the same with data that no flush has covered.
/// What the last two write to `/x` leaves too little for the write behind it.
pub(crate) const SCRIPTS: [&str; 3] = [
    "append /fill 8M 6; write /r 0 9000 7; fsync /r; write /r 100k 50k 8; write /r 300001 100 9; fsync /r; \
     write /r 500k 4096 10; write /r 590k 10k 11; fsync /z; fdatasync /r; write /r 400k 1000 12; sync",
    "append /fill 8M 6; unlink /gap; sync; zero /z 0 100k keep; write /x 0 64k 7; write /z 0 100k 8; fsync /z; \
     write /r 8192 100 9; fsync /z; fsync /r",
    "append /fill 8M 6; unlink /gap; sync; write /y 0 32k 7; zero /y 0 32k keep; write /x 0 64k 8; write /y 0 32k 9; fsync /y; \
     write /r 8192 5000 10; fsync /r",
];
