//! The picture: one row for each block group (or for several, in a large image), the blocks from
//! left to right in the colour of what they are used for.

use super::survey::{Kind, Survey};
use crate::size::human;
use std::fmt::Write;

/// Most rows drawn.
const MOST_ROWS: u64 = 96;
/// Width of a row in pixels, each of which shows what most of its blocks are used for.
const WIDTH: u64 = 960;
const ROW: u64 = 14;
const GAP: u64 = 3;
const LEFT: u64 = 96;
const TOP: u64 = 64;
const LEGEND_ROW: u64 = 22;

/// Draws the survey.
pub(super) fn draw(survey: &Survey, title: &str) -> String {
    let groups = u64::from(survey.groups.max(1));
    // A power of two, as sizes of flexible groups are: what repeats stands in columns.
    let groups_per_row = groups.div_ceil(MOST_ROWS).next_power_of_two();
    let blocks_per_row = groups_per_row * u64::from(survey.blocks_per_group.max(1));
    let rows = survey.blocks.div_ceil(blocks_per_row).max(1);
    let grid_height = rows * (ROW + GAP);
    let legend_top = TOP + grid_height + 24;
    let totals = survey.totals();
    let present: Vec<Kind> = Kind::ALL
        .into_iter()
        .filter(|kind| totals[*kind as usize] > 0)
        .collect();
    let legend_rows = (present.len() as u64).div_ceil(3);
    let height = legend_top + legend_rows * LEGEND_ROW + 16;
    let width = LEFT + WIDTH + 24;
    let mut svg = String::new();
    // Writing to a string cannot fail.
    let _ = write!(
        svg,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"#ffffff\"/>\n\
         <text x=\"24\" y=\"28\" font-size=\"18\" fill=\"#222222\">{}</text>\n\
         <text x=\"24\" y=\"48\" fill=\"#666666\">{}, {} groups, {} blocks of {} bytes; a row is {}</text>\n",
        escaped(title),
        human(survey.blocks.saturating_mul(survey.block_size.into())),
        survey.groups,
        survey.blocks,
        survey.block_size,
        if groups_per_row == 1 {
            "one group".to_owned()
        } else {
            format!("{groups_per_row} groups")
        },
    );
    draw_rows(&mut svg, survey, blocks_per_row, groups_per_row, rows);
    draw_legend(&mut svg, survey, &present, legend_top);
    svg.push_str("</svg>\n");
    svg
}

fn draw_rows(svg: &mut String, survey: &Survey, per_row: u64, groups_per_row: u64, rows: u64) {
    let cells = cells(survey, per_row, rows);
    for (row, cells) in (0..rows).zip(cells.chunks(WIDTH as usize)) {
        let y = TOP + row * (ROW + GAP);
        let _ = writeln!(
            svg,
            "<text x=\"{}\" y=\"{}\" text-anchor=\"end\" fill=\"#666666\" font-size=\"11\">{}</text>",
            LEFT - 8,
            y + 11,
            format_args!("group {}", row * groups_per_row)
        );
        let mut x = 0;
        for same in cells.chunk_by(|a, b| a == b) {
            let len = same.len();
            if let Some(Some(kind)) = same.first() {
                let _ = writeln!(
                    svg,
                    "<rect x=\"{}\" y=\"{y}\" width=\"{len}\" height=\"{ROW}\" fill=\"{}\">\
                     <title>{}, from block {}</title></rect>",
                    LEFT as usize + x,
                    colour(*kind),
                    kind.title(),
                    first_block(row * WIDTH + x as u64, per_row)
                );
            }
            x += len;
        }
    }
}

/// The first block that begins in a pixel.
fn first_block(pixel: u64, per_row: u64) -> u64 {
    (u128::from(pixel) * u128::from(per_row)).div_ceil(u128::from(WIDTH)) as u64
}

/// What most blocks of each pixel are used for, row by row; used blocks count before free ones, so
/// that a lone block is seen. `None` past the end of the image.
fn cells(survey: &Survey, per_row: u64, rows: u64) -> Vec<Option<Kind>> {
    let mut cells: Vec<Option<(Kind, u64)>> = vec![None; (rows * WIDTH) as usize];
    // Blocks before a pixel's first, exact in 128 bits.
    let total = rows * WIDTH;
    let pixel_of =
        |block: u64| (u128::from(block) * u128::from(WIDTH) / u128::from(per_row)) as u64;
    let start_of = |pixel| first_block(pixel, per_row);
    for run in &survey.runs {
        let end = run.start + run.len;
        let mut pixel = pixel_of(run.start);
        while pixel < total {
            let from = start_of(pixel).max(run.start);
            let to = start_of(pixel + 1).min(end);
            let blocks = to.saturating_sub(from).max(1);
            if let Some(cell) = cells.get_mut(pixel as usize) {
                let wins = match cell {
                    None => true,
                    Some((Kind::Free, _)) => run.kind != Kind::Free,
                    Some((_, most)) => run.kind != Kind::Free && blocks > *most,
                };
                if wins {
                    *cell = Some((run.kind, blocks));
                }
            }
            if start_of(pixel + 1) >= end {
                break;
            }
            pixel += 1;
        }
    }
    cells
        .into_iter()
        .map(|cell| cell.map(|(kind, _)| kind))
        .collect()
}

fn draw_legend(svg: &mut String, survey: &Survey, present: &[Kind], top: u64) {
    let totals = survey.totals();
    let column = (LEFT + WIDTH) / 3;
    for (index, &kind) in (0u64..).zip(present) {
        let (x, y) = (24 + index % 3 * column, top + index / 3 * LEGEND_ROW);
        let blocks = totals[kind as usize];
        let percent = blocks as f64 * 100.0 / survey.blocks.max(1) as f64;
        let _ = writeln!(
            svg,
            "<rect x=\"{x}\" y=\"{y}\" width=\"14\" height=\"14\" fill=\"{}\" stroke=\"#999999\" \
             stroke-width=\"0.5\"/>\n\
             <text x=\"{}\" y=\"{}\" fill=\"#222222\">{}: {} ({percent:.1}%)</text>",
            colour(kind),
            x + 22,
            y + 12,
            kind.title(),
            human(blocks.saturating_mul(survey.block_size.into())),
        );
    }
}

/// Colours that are told apart without telling red from green.
fn colour(kind: Kind) -> &'static str {
    match kind {
        Kind::Superblock => "#000000",
        Kind::Descriptors => "#7a0177",
        Kind::ReservedDescriptors => "#d8b5d8",
        Kind::Bitmap => "#e31a1c",
        Kind::InodeTable => "#ff9f1c",
        Kind::Journal => "#8c6d31",
        Kind::Directory => "#17becf",
        Kind::Data => "#1f5fa8",
        Kind::Other => "#6b8fb5",
        Kind::Free => "#ececec",
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}
