//! A device in memory, for tests, simulation and the library without a disk.
//!
//! Bytes live in 4 KiB pages that are made when first written, grouped into
//! 2 MiB regions, so that a device of many GiB costs next to nothing. Pages
//! and regions are shared between copies and copied when one of them writes:
//! a [`MemoryDevice::snapshot`] costs one pointer for each region, and an
//! image that differs from its base in one sector costs one page.
//!
//! Always true: a byte that was never written reads as zero. Every write is
//! kept at once, so flushing orders nothing here; `sim` is the device that lies.

use std::fmt;
use std::sync::Arc;

use parking_lot::RwLock;

use crate::range;
use crate::tally::Tally;
use crate::{Device, DeviceError, DeviceStats, Discards, Flushed};

/// Bytes of a page.
const PAGE: usize = 4096;
/// Pages of a region.
const REGION_PAGES: usize = 512;
/// Bytes of a region.
const REGION: u64 = (PAGE * REGION_PAGES) as u64;

type Page = [u8; PAGE];

/// Contiguous pages; `None` is a page of zeros.
#[derive(Clone)]
struct Region {
    pages: Vec<Option<Arc<Page>>>,
}

impl Region {
    fn empty() -> Region {
        Region { pages: vec![None; REGION_PAGES] }
    }
}

/// A sparse device in memory.
pub struct MemoryDevice {
    len: u64,
    sector_size: u32,
    physical_sector_size: u32,
    /// `None` is a region of zeros. One lock each: writers of different regions do not meet.
    regions: Box<[RwLock<Option<Arc<Region>>>]>,
    tally: Tally,
}

impl MemoryDevice {
    /// An empty device of `bytes` bytes with sectors of 512.
    pub fn new(bytes: u64) -> MemoryDevice {
        MemoryDevice::with_sector_size(bytes, 512)
    }

    /// An empty device with sectors of `sector_size` bytes, logical and physical: 512 or 4,096.
    ///
    /// # Panics
    /// With any other sector size.
    pub fn with_sector_size(bytes: u64, sector_size: u32) -> MemoryDevice {
        MemoryDevice::with_sector_sizes(bytes, sector_size, sector_size)
    }

    /// An empty device with logical sectors of `sector_size` bytes, 512 or 4,096, and physical ones of
    /// `physical_sector_size`, a power of two and not below that.
    ///
    /// # Panics
    /// With any other size.
    pub fn with_sector_sizes(
        bytes: u64,
        sector_size: u32,
        physical_sector_size: u32,
    ) -> MemoryDevice {
        assert!(
            sector_size == 512 || sector_size == 4096,
            "sectors have 512 or 4096 bytes, not {sector_size}"
        );
        assert!(
            physical_sector_size.is_power_of_two() && physical_sector_size >= sector_size,
            "physical sectors cannot have {physical_sector_size} bytes"
        );
        let regions = (0..bytes.div_ceil(REGION)).map(|_| RwLock::new(None)).collect();
        let tally = Tally::default();
        MemoryDevice { len: bytes, sector_size, physical_sector_size, regions, tally }
    }

    /// A device that holds exactly `image`, with sectors of 512 bytes.
    pub fn from_image(image: &[u8]) -> MemoryDevice {
        let device = MemoryDevice::new(image.len() as u64);
        for (index, page) in image.chunks(PAGE).enumerate() {
            if page.iter().any(|&byte| byte != 0) {
                device.put((index * PAGE) as u64, page);
            }
        }
        device
    }

    /// All bytes, holes as zeros. For devices that fit twice into memory.
    pub fn to_image(&self) -> Vec<u8> {
        let mut image = vec![0; self.len as usize];
        self.get(0, &mut image);
        image
    }

    /// An independent device with the same bytes, sharing pages until one of the two writes them.
    /// Its statistics start at zero. Writes that run meanwhile are in it or not, region by region.
    pub fn snapshot(&self) -> MemoryDevice {
        MemoryDevice {
            len: self.len,
            sector_size: self.sector_size,
            physical_sector_size: self.physical_sector_size,
            regions: self.regions.iter().map(|region| RwLock::new(region.read().clone())).collect(),
            tally: Tally::default(),
        }
    }

    /// Bytes of memory that hold pages, counting pages shared with copies in full.
    pub fn allocated_bytes(&self) -> u64 {
        let pages = self.regions.iter().map(|region| match &*region.read() {
            Some(region) => region.pages.iter().flatten().count(),
            None => 0,
        });
        pages.sum::<usize>() as u64 * PAGE as u64
    }

    /// Copies bytes out. The range lies inside the device.
    pub(crate) fn get(&self, at: u64, into: &mut [u8]) {
        let mut done = 0;
        while done < into.len() {
            let (region, page, offset) = place(at + done as u64);
            let end = usize::min(into.len(), done + REGION_PAGES * PAGE - page * PAGE - offset);
            let region = self.regions[region].read();
            let (mut page, mut offset) = (page, offset);
            while done < end {
                let count = usize::min(end - done, PAGE - offset);
                let target = &mut into[done..done + count];
                match region.as_ref().and_then(|region| region.pages[page].as_ref()) {
                    Some(bytes) => target.copy_from_slice(&bytes[offset..offset + count]),
                    None => target.fill(0),
                }
                done += count;
                page += 1;
                offset = 0;
            }
        }
    }

    /// Copies bytes in, at any offset and of any length. The range lies inside the device.
    pub(crate) fn put(&self, at: u64, bytes: &[u8]) {
        let mut done = 0;
        while done < bytes.len() {
            let (region, page, offset) = place(at + done as u64);
            let end = usize::min(bytes.len(), done + REGION_PAGES * PAGE - page * PAGE - offset);
            let mut region = self.regions[region].write();
            let region = region.get_or_insert_with(|| Arc::new(Region::empty()));
            let region = Arc::make_mut(region);
            let (mut page, mut offset) = (page, offset);
            while done < end {
                let count = usize::min(end - done, PAGE - offset);
                let target = region.pages[page].get_or_insert_with(|| Arc::new([0; PAGE]));
                Arc::make_mut(target)[offset..offset + count]
                    .copy_from_slice(&bytes[done..done + count]);
                done += count;
                page += 1;
                offset = 0;
            }
        }
    }

    /// Turns the whole pages of a range into zeros and gives their memory back.
    fn forget(&self, at: u64, len: u64) {
        let first = at.div_ceil(PAGE as u64);
        let end = (at + len) / PAGE as u64;
        for page in first..end {
            let (region, page, _) = place(page * PAGE as u64);
            let mut region = self.regions[region].write();
            if let Some(region) = &mut *region
                && region.pages[page].is_some()
            {
                Arc::make_mut(region).pages[page] = None;
            }
        }
    }
}

/// Region, page in it and offset in the page of a byte.
fn place(at: u64) -> (usize, usize, usize) {
    let region = (at / REGION) as usize;
    let within = (at % REGION) as usize;
    (region, within / PAGE, within % PAGE)
}

impl Device for MemoryDevice {
    crate::private!();

    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        self.tally.read(into.len());
        range::inside("read", at, into.len() as u64, self.len)?;
        self.get(at, into);
        Ok(())
    }

    fn write(&self, at: u64, bytes: &[u8]) -> Result<(), DeviceError> {
        self.tally.write(bytes.len());
        range::writable(at, bytes.len() as u64, self.len, self.sector_size)?;
        self.put(at, bytes);
        Ok(())
    }

    fn flush(&self) -> Result<Flushed, DeviceError> {
        self.tally.flush();
        Ok(Flushed::new())
    }

    fn discard(&self, at: u64, len: u64) -> Result<(), DeviceError> {
        self.tally.discard();
        range::inside("discard", at, len, self.len)?;
        self.forget(at, len);
        Ok(())
    }

    fn discards(&self) -> Discards {
        Discards::OfDevice { unit: PAGE as u64 }
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn sector_size(&self) -> u32 {
        self.sector_size
    }

    fn physical_sector_size(&self) -> u32 {
        self.physical_sector_size
    }

    fn stats(&self) -> DeviceStats {
        self.tally.stats()
    }
}

impl fmt::Debug for MemoryDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryDevice")
            .field("len", &self.len)
            .field("sector_size", &self.sector_size)
            .field("physical_sector_size", &self.physical_sector_size)
            .field("allocated", &self.allocated_bytes())
            .finish()
    }
}

#[cfg(test)]
mod tests;
