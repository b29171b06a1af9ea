#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    extant_fuzz_targets::image_rescued(input);
});
