//! For a device in front of another: the calls that it passes on as they are.
//!
//! Such a device implements only what it does differently. Some calls go together: the length and its growth, both sizes of
//! sectors, what the host has and what it has given, discards and where the space is then, other writers and the cache in between.

/// Inside of `impl Device`: passes the named calls on to the device in a field; those that reach its bytes, or its length, only if a
/// method says that they may.
/// `forward!(under: read, len, stats);` `forward!(under if may_write: write, discard);`
#[macro_export]
macro_rules! forward {
    ($under:ident: $($call:ident),+) => {
        $($crate::forward!(@$call $under []);)+
    };
    ($under:ident if $may:ident: $($call:ident),+) => {
        $($crate::forward!(@$call $under [$may]);)+
    };
    (@read $under:ident [$($may:ident)?]) => {
        fn read(&self, at: u64, into: &mut [u8]) -> ::std::result::Result<(), $crate::DeviceError> {
            $(self.$may()?;)?
            self.$under.read(at, into)
        }

        fn data_from(&self, at: u64) -> u64 {
            self.$under.data_from(at)
        }
    };
    (@write $under:ident [$($may:ident)?]) => {
        fn write(&self, at: u64, bytes: &[u8]) -> ::std::result::Result<(), $crate::DeviceError> {
            $(self.$may()?;)?
            self.$under.write(at, bytes)
        }
    };
    (@flush $under:ident [$($may:ident)?]) => {
        fn flush(&self) -> ::std::result::Result<$crate::Flushed, $crate::DeviceError> {
            $(self.$may()?;)?
            self.$under.flush()
        }
    };
    (@discard $under:ident [$($may:ident)?]) => {
        fn discard(&self, at: u64, len: u64) -> ::std::result::Result<(), $crate::DeviceError> {
            $(self.$may()?;)?
            self.$under.discard(at, len)
        }

        fn discards(&self) -> $crate::Discards {
            self.$under.discards()
        }
    };
    (@len $under:ident [$($may:ident)?]) => {
        fn len(&self) -> u64 {
            self.$under.len()
        }

        fn grow(&self, bytes: u64) -> ::std::result::Result<(), $crate::DeviceError> {
            $(self.$may()?;)?
            self.$under.grow(bytes)
        }

        fn room_to_grow(&self) -> ::std::option::Option<u64> {
            self.$under.room_to_grow()
        }
    };
    (@room $under:ident []) => {
        fn room(&self) -> ::std::option::Option<u64> {
            self.$under.room()
        }

        fn given(&self) -> u64 {
            self.$under.given()
        }
    };
    (@take_room $under:ident [$($may:ident)?]) => {
        fn take_room(&self, at: u64, len: u64) -> ::std::result::Result<(), $crate::DeviceError> {
            $(self.$may()?;)?
            self.$under.take_room(at, len)
        }
    };
    (@sector_size $under:ident []) => {
        fn sector_size(&self) -> u32 {
            self.$under.sector_size()
        }

        fn physical_sector_size(&self) -> u32 {
            self.$under.physical_sector_size()
        }
    };
    (@reach $under:ident []) => {
        fn reach(&self) -> $crate::Reach {
            self.$under.reach()
        }

        fn drop_cache(&self, at: u64, len: u64) {
            self.$under.drop_cache(at, len);
        }
    };
    (@stats $under:ident []) => {
        fn stats(&self) -> $crate::DeviceStats {
            self.$under.stats()
        }
    };
}

/// Inside of `impl Device`, for bytes that belong to this process: no host has to give them, no other process reaches
/// them.
#[macro_export]
macro_rules! private {
    () => {
        fn room(&self) -> ::std::option::Option<u64> {
            ::std::option::Option::None
        }

        fn given(&self) -> u64 {
            0
        }

        fn take_room(&self, _at: u64, _len: u64) -> ::std::result::Result<(), $crate::DeviceError> {
            ::std::result::Result::Ok(())
        }

        fn reach(&self) -> $crate::Reach {
            $crate::Reach::Alone
        }

        fn drop_cache(&self, _at: u64, _len: u64) {}
    };
}
