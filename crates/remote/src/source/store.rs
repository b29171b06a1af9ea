//! Objects of S3, Google Cloud Storage and Azure, by `object_store`.
//!
//! Each request for a range asks for the ETag that was found at the beginning (or for the version,
//! where the URL or the store names one).

use super::transport::{Transport, noted};
use super::{Beginning, Pin, Sink};
use crate::address::{Address, Scheme};
use crate::error::{RemoteError, innermost};
use crate::options::{StoreSettings, Timeouts};
use bytes::Bytes;
use futures_util::StreamExt;
use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::multipart::MultipartStore;
use object_store::path::Path;
use object_store::{GetOptions, GetRange, GetResult, ObjectStore, RetryConfig};
use std::ops::Range;
use std::sync::Arc;

const AWS: &str = "credentials come from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (with \
                   AWS_SESSION_TOKEN, AWS_REGION, AWS_ENDPOINT_URL); AWS_SKIP_SIGNATURE=true asks \
                   without any";
const GOOGLE: &str = "credentials come from GOOGLE_SERVICE_ACCOUNT or \
                      GOOGLE_APPLICATION_CREDENTIALS; GOOGLE_SKIP_SIGNATURE=true asks without any";
const AZURE: &str = "credentials come from AZURE_STORAGE_ACCOUNT_NAME with \
                     AZURE_STORAGE_ACCOUNT_KEY or AZURE_STORAGE_SAS_KEY; AZURE_SKIP_SIGNATURE=true \
                     asks without any";

/// A bucket of a store, with the means to read from it and to write to it.
#[derive(Debug, Clone)]
pub(crate) struct Bucket {
    pub(crate) objects: Arc<dyn ObjectStore>,
    pub(crate) parts: Arc<dyn Parts>,
}

/// What writes an object in parts.
pub(crate) trait Parts: MultipartStore + std::fmt::Debug {}

impl<T: MultipartStore + std::fmt::Debug> Parts for T {}

impl Bucket {
    fn on<T: ObjectStore + MultipartStore>(store: T) -> Self {
        let store = Arc::new(store);
        Self {
            objects: store.clone(),
            parts: store,
        }
    }

    /// The bucket that the address names, with the settings of the environment. `again` says how
    /// `object_store` is to repeat what fails.
    pub(crate) fn of(
        address: &Address,
        client: &reqwest::Client,
        timeouts: &Timeouts,
        settings: &StoreSettings,
        again: RetryConfig,
    ) -> Result<Self, RemoteError> {
        let transport = |advice| Transport {
            client: client.clone(),
            limit: timeouts.idle,
            advice,
        };
        let bad = |e: object_store::Error| RemoteError::Settings {
            reason: innermost(&e),
        };
        // The builders have the same methods and no trait that says so.
        macro_rules! built {
            ($builder:ty, $with_bucket:ident, $advice:expr) => {{
                let builder = <$builder>::from_env();
                let builder = settings.iter().fold(builder, |builder, (name, value)| {
                    match name.to_ascii_lowercase().parse() {
                        Ok(key) => builder.with_config(key, value),
                        // It is about another store.
                        Err(_) => builder,
                    }
                });
                let builder = builder
                    .$with_bucket(address.bucket())
                    .with_http_connector(transport($advice))
                    .with_retry(again);
                Self::on(builder.build().map_err(bad)?)
            }};
        }
        Ok(match address.scheme {
            Scheme::S3 => built!(AmazonS3Builder, with_bucket_name, AWS),
            Scheme::Gcs => built!(GoogleCloudStorageBuilder, with_bucket_name, GOOGLE),
            Scheme::Azure => built!(MicrosoftAzureBuilder, with_container_name, AZURE),
            Scheme::Http => {
                return Err(RemoteError::BadUrl {
                    reason: "plain HTTP names no bucket".to_owned(),
                });
            }
        })
    }
}

/// The path of an object as `object_store` writes it.
pub(crate) fn path_of(address: &Address) -> Result<Path, RemoteError> {
    let key = address.key()?;
    Path::parse(&key).map_err(|e| RemoteError::BadUrl {
        reason: format!("the key cannot be asked for: {}", innermost(&e)),
    })
}

/// An object of a store.
#[derive(Debug)]
pub(crate) struct StoreSource {
    bucket: Bucket,
    path: Path,
    version: Option<String>,
}

impl StoreSource {
    pub(crate) fn new(bucket: Bucket, address: &Address) -> Result<Self, RemoteError> {
        Ok(Self {
            bucket,
            path: path_of(address)?,
            version: address.version(),
        })
    }

    pub(super) async fn begin(&self, want: u64) -> Result<Beginning, RemoteError> {
        let options = GetOptions {
            range: Some(GetRange::Bounded(0..want)),
            version: self.version.clone(),
            ..GetOptions::default()
        };
        let result = match self.get(options).await {
            // An empty object has no first byte.
            Err(RemoteError::Status { status: 416, .. }) => return self.begin_empty().await,
            result => result?,
        };
        let pin = pin_of(&result);
        let mut bytes = Vec::new();
        let given = result.range.end - result.range.start;
        receive(result, given, &mut bytes).await?;
        Ok(Beginning {
            pin,
            bytes: Bytes::from(bytes),
        })
    }

    async fn begin_empty(&self) -> Result<Beginning, RemoteError> {
        let options = GetOptions {
            head: true,
            version: self.version.clone(),
            ..GetOptions::default()
        };
        let pin = pin_of(&self.get(options).await?);
        if pin.size != 0 {
            return Err(RemoteError::IgnoresRanges);
        }
        Ok(Beginning {
            pin,
            bytes: Bytes::new(),
        })
    }

    pub(super) async fn fetch(
        &self,
        asked: Range<u64>,
        pin: &Pin,
        sink: &mut dyn Sink,
    ) -> Result<(), RemoteError> {
        let options = GetOptions {
            range: Some(GetRange::Bounded(asked.clone())),
            if_match: pin.strong_etag().map(str::to_owned),
            version: self.version.clone(),
            ..GetOptions::default()
        };
        let result = match self.get(options).await {
            Err(RemoteError::Status { status: 416, .. }) => {
                return Err(RemoteError::Changed {
                    what: format!("it had {} bytes and has fewer", pin.size),
                });
            }
            result => result?,
        };
        pin.check(&pin_of(&result))?;
        receive(result, asked.end - asked.start, sink).await
    }

    async fn get(&self, options: GetOptions) -> Result<GetResult, RemoteError> {
        let work = self.bucket.objects.get_opts(&self.path, options);
        noted(work, of_store).await
    }
}

/// An error of `object_store` that no request of ours met.
pub(crate) fn of_store(error: object_store::Error) -> RemoteError {
    match error {
        object_store::Error::Generic { source, .. } => RemoteError::BadAnswer {
            reason: innermost(&*source),
        },
        error => RemoteError::Settings {
            reason: innermost(&error),
        },
    }
}

fn pin_of(result: &GetResult) -> Pin {
    Pin {
        size: result.meta.size,
        etag: result.meta.e_tag.clone(),
        version: result.meta.version.clone(),
        modified: Some(result.meta.last_modified.to_rfc2822()),
    }
}

/// Gives the body to `sink`, which is to get exactly `wanted` bytes.
async fn receive(result: GetResult, wanted: u64, sink: &mut dyn Sink) -> Result<(), RemoteError> {
    let mut stream = result.into_stream();
    let mut got = 0;
    loop {
        let next = noted(async { stream.next().await.transpose() }, |_| {
            RemoteError::Truncated { got, wanted }
        });
        match next.await {
            Ok(Some(chunk)) => {
                got += chunk.len() as u64;
                if got > wanted {
                    return Err(RemoteError::BadAnswer {
                        reason: format!("more than the {wanted} bytes that were asked for came"),
                    });
                }
                sink.take(&chunk);
            }
            Ok(None) if got == wanted => return Ok(()),
            Ok(None) => return Err(RemoteError::Truncated { got, wanted }),
            Err(e) => return Err(e),
        }
    }
}
