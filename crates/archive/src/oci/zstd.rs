//! Layers that are compressed with zstd: one frame after the other, with a bound for the memory that one may ask for.

use std::io::{self, BufRead, ErrorKind, Read};

use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

/// Bytes that a frame may ask to be remembered: compressors use 8 MiB at most unless they are told otherwise.
const WINDOW_MAX: u64 = 64 << 20;

/// What was compressed, as it was.
pub(super) struct Zstd<R> {
    from: R,
    decoder: FrameDecoder,
    is_in_frame: bool,
}

fn damaged(error: impl std::fmt::Display) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, format!("what zstd has compressed is damaged: {error}"))
}

impl<R: BufRead> Zstd<R> {
    pub(super) fn new(from: R) -> Zstd<R> {
        let mut decoder = FrameDecoder::new();
        decoder.set_max_window_size(WINDOW_MAX);
        Zstd { from, decoder, is_in_frame: false }
    }

    /// Begins the next frame; false: there is none.
    fn begin(&mut self) -> io::Result<bool> {
        loop {
            // An error of the source is its own, and its end is judged by its digest.
            if self.from.fill_buf()?.is_empty() {
                return Ok(false);
            }
            match self.decoder.reset(&mut self.from) {
                Ok(()) => {
                    self.is_in_frame = true;
                    return Ok(true);
                }
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    let skipped = (&mut self.from).take(length.into());
                    if io::copy(&mut { skipped }, &mut io::sink())? < length.into() {
                        return Err(ErrorKind::UnexpectedEof.into());
                    }
                }
                Err(error) => return Err(damaged(error)),
            }
        }
    }
}

impl<R: BufRead> Read for Zstd<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if into.is_empty() {
            return Ok(0);
        }
        loop {
            if !self.is_in_frame && !self.begin()? {
                return Ok(0);
            }
            while self.decoder.can_collect() == 0 && !self.decoder.is_finished() {
                let how = BlockDecodingStrategy::UptoBlocks(1);
                self.decoder.decode_blocks(&mut self.from, how).map_err(damaged)?;
            }
            let some = self.decoder.read(into)?;
            if some > 0 {
                return Ok(some);
            }
            let (said, found) =
                (self.decoder.get_checksum_from_data(), self.decoder.get_calculated_checksum());
            if said.is_some() && said != found {
                return Err(damaged("its checksum is another one"));
            }
            self.is_in_frame = false;
        }
    }
}
