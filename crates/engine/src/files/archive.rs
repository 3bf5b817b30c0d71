//! A folder of a session as one stream.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;

use flate2::Compression;
use flate2::write::GzEncoder;
use rustix::fs::FileType;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use utoipa::ToSchema;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

use super::walk::{Found, Step, walk};
use super::workspace::Workspace;

/// Form of an archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub enum ArchiveFormat {
    /// A compressed tar file.
    #[default]
    #[serde(rename = "tar.gz")]
    TarGz,
    /// A zip file.
    #[serde(rename = "zip")]
    Zip,
}

impl ArchiveFormat {
    /// End of a file name.
    #[must_use]
    pub fn suffix(self) -> &'static str {
        match self {
            Self::TarGz => "tar.gz",
            Self::Zip => "zip",
        }
    }

    /// Media type.
    #[must_use]
    pub fn mime(self) -> &'static str {
        match self {
            Self::TarGz => "application/gzip",
            Self::Zip => "application/zip",
        }
    }
}

/// A folder to be written as an archive.
pub struct Archive {
    folder: OwnedFd,
    /// Bytes of all files together.
    most: Option<u64>,
}

impl Workspace {
    /// Opens a folder (`""` for the workspace itself) to be written as an archive. Blocks.
    ///
    /// # Errors
    /// `NotFound` when there is no such folder; an error of its own when its files are longer than any that were written could be.
    pub fn archive(&self, folder: &str) -> std::io::Result<Archive> {
        Archive::of(self.folder(folder)?, self.most_archived(folder)?)
    }
}

/// Room that is left in an archive.
struct Room {
    most: Option<u64>,
    used: u64,
}

impl Room {
    fn take(&mut self, bytes: u64) -> std::io::Result<()> {
        self.used = self.used.saturating_add(bytes);
        match self.most {
            Some(most) if self.used > most => Err(std::io::Error::other(format!(
                "its files are together longer than {most} bytes, four times what the session's disk holds; files with holes count in their full length"
            ))),
            _ => Ok(()),
        }
    }
}

impl Archive {
    /// Looks whether there is room before the first byte is written: afterwards an answer can only break off.
    fn of(folder: OwnedFd, most: Option<u64>) -> std::io::Result<Self> {
        let mut room = Room { most, used: 0 };
        walk(&folder, "", &mut |found: &Found<'_>| match found.kind {
            FileType::Directory => Ok(Step::Enter),
            FileType::RegularFile => room.take(found.size()).map(|()| Step::Pass),
            _ => Ok(Step::Pass),
        })?;
        Ok(Self { folder, most })
    }

    /// Writes folders and regular files with paths relative to the folder; what is neither, or in use inside the sandbox, is left out. Never holds a file in memory. Blocks.
    ///
    /// # Errors
    /// Those of `to`, and of reading the folder; what was written is no archive then.
    pub fn write(&self, format: ArchiveFormat, to: impl Write) -> std::io::Result<()> {
        match format {
            ArchiveFormat::TarGz => self.write_tar(to),
            ArchiveFormat::Zip => self.write_zip(to),
        }
    }

    fn write_tar(&self, to: impl Write) -> std::io::Result<()> {
        let mut tar = tar::Builder::new(GzEncoder::new(to, Compression::fast()));
        let mut room = Room { most: self.most, used: 0 };
        walk(&self.folder, "", &mut |found: &Found<'_>| {
            let mut header = tar::Header::new_gnu();
            header.set_mtime(u64::try_from(found.modified().0).unwrap_or(0));
            match found.kind {
                FileType::Directory => {
                    header.set_entry_type(tar::EntryType::Directory);
                    header.set_mode(0o755);
                    header.set_size(0);
                    tar.append_data(&mut header, &found.path, std::io::empty())?;
                    Ok(Step::Enter)
                }
                FileType::RegularFile => {
                    if let Some(content) = Exact::of(found)? {
                        room.take(content.left)?;
                        header.set_mode(0o644);
                        header.set_size(content.left);
                        tar.append_data(&mut header, &found.path, content)?;
                    }
                    Ok(Step::Pass)
                }
                _ => Ok(Step::Pass),
            }
        })?;
        tar.into_inner()?.finish()?.flush()
    }

    fn write_zip(&self, to: impl Write) -> std::io::Result<()> {
        let mut zip = ZipWriter::new_stream(to);
        let mut room = Room { most: self.most, used: 0 };
        walk(&self.folder, "", &mut |found: &Found<'_>| {
            let options = SimpleFileOptions::default().compression_method(CompressionMethod::Deflated);
            let options = options.last_modified_time(zip_time(found.modified().0)).compression_level(Some(1));
            match found.kind {
                FileType::Directory => {
                    zip.add_directory(found.path.as_str(), options.unix_permissions(0o755))?;
                    Ok(Step::Enter)
                }
                FileType::RegularFile => {
                    if let Some(mut content) = Exact::of(found)? {
                        room.take(content.left)?;
                        // Bigger ones need the larger form of the format, which some readers do not know.
                        let large = content.left >= u64::from(u32::MAX);
                        zip.start_file(found.path.as_str(), options.unix_permissions(0o644).large_file(large))?;
                        std::io::copy(&mut content, &mut zip)?;
                    }
                    Ok(Step::Pass)
                }
                _ => Ok(Step::Pass),
            }
        })?;
        zip.finish()?.into_inner().flush()
    }
}

/// What a zip file can say of a time: years from 1980 to 2107, in steps of two seconds.
fn zip_time(seconds: i64) -> zip::DateTime {
    let Ok(at) = OffsetDateTime::from_unix_timestamp(seconds) else { return zip::DateTime::default() };
    let year = u16::try_from(at.year()).unwrap_or(0);
    zip::DateTime::from_date_and_time(year, at.month().into(), at.day(), at.hour(), at.minute(), at.second())
        .unwrap_or_default()
}

/// A file with the length it had when it was opened, which was announced: cut when it grows, filled up with zeros when it shrinks.
struct Exact {
    file: File,
    left: u64,
}

impl Exact {
    fn of(found: &Found<'_>) -> std::io::Result<Option<Self>> {
        let file = match found.open() {
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => None,
            other => other?,
        };
        let Some(file) = file else { return Ok(None) };
        let left = file.metadata()?.len();
        Ok(Some(Self { file, left }))
    }
}

impl Read for Exact {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
        let read = match self.file.read(&mut buffer[..most])? {
            0 => {
                buffer[..most].fill(0);
                most
            }
            read => read,
        };
        self.left -= read as u64;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::os::unix::fs::symlink;
    use std::sync::Arc;

    use super::*;
    use crate::files::tests::disk;

    #[test]
    fn an_archive_holds_files_and_folders_and_nothing_a_link_points_to() {
        let (folder, disk) = disk();
        let data = folder.path().join("data");
        std::fs::create_dir_all(data.join("a/空 b")).unwrap();
        std::fs::create_dir(data.join("empty")).unwrap();
        std::fs::write(data.join("a/空 b/-x 'q'.txt"), "inner").unwrap();
        std::fs::write(data.join("big"), vec![7; 300_000]).unwrap();
        symlink("/etc", data.join("link")).unwrap();
        symlink("/etc/passwd", data.join("a/passwd")).unwrap();
        let archive = Workspace::new(Arc::new(disk), None).archive("").unwrap();

        let mut bytes = Vec::new();
        archive.write(ArchiveFormat::TarGz, &mut bytes).unwrap();
        let mut tar = tar::Archive::new(flate2::read::GzDecoder::new(&bytes[..]));
        let mut in_tar = BTreeMap::new();
        for entry in tar.entries().unwrap() {
            let mut entry = entry.unwrap();
            let path = entry.path().unwrap().to_str().unwrap().trim_end_matches('/').to_owned();
            let mut content = Vec::new();
            entry.read_to_end(&mut content).unwrap();
            in_tar.insert(path, content);
        }
        let names: Vec<_> = in_tar.keys().map(String::as_str).collect();
        assert_eq!(names, ["a", "a/空 b", "a/空 b/-x 'q'.txt", "big", "empty"]);
        assert_eq!((&in_tar["a/空 b/-x 'q'.txt"][..], in_tar["big"].len()), (&b"inner"[..], 300_000));

        let mut bytes = Vec::new();
        archive.write(ArchiveFormat::Zip, &mut bytes).unwrap();
        let mut zip = zip::ZipArchive::new(std::io::Cursor::new(bytes)).unwrap();
        let mut in_zip = BTreeMap::new();
        for index in 0..zip.len() {
            let mut entry = zip.by_index(index).unwrap();
            let mut content = Vec::new();
            entry.read_to_end(&mut content).unwrap();
            in_zip.insert(entry.name().unwrap().trim_end_matches('/').to_owned(), content);
        }
        assert_eq!(in_zip, in_tar);
    }

    #[test]
    fn files_with_holes_make_no_archive_without_an_end() {
        let (folder, disk) = disk();
        let data = folder.path().join("data");
        File::create(data.join("holes")).unwrap().set_len(900).unwrap();
        std::fs::hard_link(data.join("holes"), data.join("once more")).unwrap();
        let open = || crate::files::workspace(&disk).unwrap();
        assert!(Archive::of(open(), Some(1799)).err().unwrap().to_string().contains("1799 bytes"));
        let archive = Archive::of(open(), Some(1800)).unwrap();
        // It grows after the look.
        File::options().write(true).open(data.join("holes")).unwrap().set_len(1 << 40).unwrap();
        for format in [ArchiveFormat::TarGz, ArchiveFormat::Zip] {
            assert!(archive.write(format, std::io::sink()).unwrap_err().to_string().contains("1800 bytes"));
        }
        assert!(Archive::of(open(), None).is_ok());
    }

    #[test]
    fn a_file_that_changes_its_length_meanwhile_keeps_the_one_announced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        std::fs::write(&path, "12").unwrap();
        for announced in [1, 4] {
            let mut text = Vec::new();
            Exact { file: File::open(&path).unwrap(), left: announced }.read_to_end(&mut text).unwrap();
            assert_eq!(text, &b"12\0\0"[..announced as usize]);
        }
    }
}
