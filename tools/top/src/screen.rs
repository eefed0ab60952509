//! The screen: what is drawn, and what keys do.

use crate::stats::{Shown, Stats};
use crate::table::{Row, View, cut, rows, sort};
use crate::text::{amount, name, time};
use crate::{ask, connect};
use limen_run::MonitorClient;
use ratatui::Frame;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::time::Duration;

/// How often keys, answers and signals are looked for.
const POLL: Duration = Duration::from_millis(100);
/// Columns between two columns of a table.
const GAP: usize = 1;

const HELP: &[(&str, &str)] = &[
    ("tab", "next view: nodes, edges, paths, workers, graph"),
    ("g", "the graph, from its sources to its sinks"),
    ("s", "sort by the next column; after the last, the order of the graph"),
    ("r", "reverse the order"),
    ("up, down, page up, page down, home", "scroll"),
    ("?", "this help"),
    ("q, esc, ctrl-c", "quit; the run continues"),
    ("", ""),
    ("p50, p99, max", "of a node's calls in the last second, or of a path's messages"),
    ("wait", "how long messages waited for the node"),
    ("depth", "queue depth: █ messages now, ▒ up to the peak of the last seconds"),
    ("lost", "messages lost so far on the way to a node and in it, without those that the graph discards on purpose"),
    ("gone", "the node has lost its device or peer"),
    (
        "starves",
        "a join has had no set for 1 s, or three times as long as usual; nothing comes through the edge that is named so",
    ),
    ("stale", "the messages of the node are too old to act on"),
    ("incidents", "faulty messages of the node that are not lost, such as those with missing values"),
    ("silent", "nothing arrived for 3 s, or three times as long as usual"),
    ("–", "too few samples for this quantile"),
];

/// What the user sees, and how.
#[derive(Debug, Default)]
struct App {
    shown: Shown,
    view: View,
    /// The column that rows are sorted by; the order of the graph without.
    sorted: Option<usize>,
    is_reversed: bool,
    /// Rows above the first that is shown.
    scrolled: usize,
    helps: bool,
    /// Why there was no answer.
    problem: Option<String>,
    has_ended: bool,
    quits: bool,
}

impl App {
    fn take(&mut self, answer: Result<Stats, String>) {
        match answer {
            Ok(stats) => {
                let before = std::mem::take(&mut self.shown).stats;
                self.shown = Shown::new(stats, (!before.graph.is_empty()).then_some(&before));
                self.problem = None;
            }
            Err(why) => self.problem = Some(name(&why)),
        }
    }

    fn show(&mut self, view: View) {
        (self.view, self.sorted, self.is_reversed, self.scrolled) = (view, None, false, 0);
    }

    fn key(&mut self, key: KeyEvent) {
        let page = 10;
        match key.code {
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => self.quits = true,
            KeyCode::Char('q') => self.quits = true,
            KeyCode::Esc if !self.helps => self.quits = true,
            // Any other key closes the help.
            _ if self.helps => self.helps = false,
            KeyCode::Char('?' | 'h') => self.helps = true,
            KeyCode::Tab => self.show(self.view.next()),
            KeyCode::Char('g') => self.show(View::Graph),
            KeyCode::Char('s') if !self.view.is_fixed() => {
                let next = self.sorted.map_or(0, |column| column + 1);
                self.sorted = (next < self.view.columns().len()).then_some(next);
                self.is_reversed = false;
            }
            KeyCode::Char('r') if !self.view.is_fixed() => self.is_reversed = !self.is_reversed,
            KeyCode::Down => self.scrolled = self.scrolled.saturating_add(1),
            KeyCode::Up => self.scrolled = self.scrolled.saturating_sub(1),
            KeyCode::PageDown => self.scrolled = self.scrolled.saturating_add(page),
            KeyCode::PageUp => self.scrolled = self.scrolled.saturating_sub(page),
            KeyCode::Home => self.scrolled = 0,
            _ => {}
        }
    }

    /// The rows in their order.
    fn rows(&self) -> Vec<Row> {
        let mut rows = rows(&self.shown, self.view);
        match self.sorted {
            Some(column) => sort(&mut rows, column, self.is_reversed),
            None if self.is_reversed => rows.reverse(),
            None => {}
        }
        rows
    }

    fn draw(&mut self, frame: &mut Frame<'_>) {
        let parts = [Constraint::Length(1), Constraint::Length(1), Constraint::Min(0), Constraint::Length(1)];
        let [head, tabs, body, foot] = Layout::vertical(parts).areas(frame.area());
        frame.render_widget(Paragraph::new(self.headline(usize::from(head.width))), head);
        frame.render_widget(Paragraph::new(self.tabs()), tabs);
        if self.helps {
            frame.render_widget(Paragraph::new(help(usize::from(body.width))), body);
        } else {
            self.draw_table(frame, body);
        }
        let keys = " q quit  tab next view  g graph  s sort  r reverse  ? help";
        frame.render_widget(Paragraph::new(Line::from(keys).dim()), foot);
    }

    /// The graph, how long it has run, and what went wrong so far.
    fn headline(&self, width: usize) -> Line<'static> {
        let stats = &self.shown.stats;
        if stats.graph.is_empty() {
            return Line::from(format!(" {}", self.problem.as_deref().unwrap_or("waiting for the run")));
        }
        let state = match (self.has_ended, &self.problem) {
            (true, _) => "ended".to_string(),
            (false, Some(why)) => why.clone(),
            (false, None) => stats.state.clone(),
        };
        let sum = |counts: &mut dyn Iterator<Item = u64>| counts.fold(0, u64::saturating_add);
        let failed = sum(&mut stats.nodes.iter().map(|node| node.stats.failed));
        let lost = sum(&mut stats.edges.iter().map(|edge| edge.lost));
        let graph = format!(" {} ", cut(&stats.graph, (width / 3).max(8)));
        let rest = format!(
            " run {}  {}  {state}  failed {}  lost {}",
            cut(&stats.run, 12),
            time(stats.elapsed_s),
            amount(failed as f64),
            amount(lost as f64),
        );
        let rest = Span::from(rest);
        let is_bad = failed > 0 || lost > 0 || self.has_ended || self.problem.is_some();
        Line::from(vec![graph.bold().reversed(), if is_bad { rest.fg(Color::Yellow) } else { rest }])
    }

    fn tabs(&self) -> Line<'static> {
        let mut spans = vec![Span::from(" ")];
        for view in View::ALL {
            let name = format!(" {} ", view.name());
            spans.push(if view == self.view { name.reversed() } else { name.into() });
        }
        if let Some((title, _)) = self.sorted.and_then(|column| self.view.columns().get(column)) {
            spans.push(format!("   by {title}").dim());
        }
        if self.is_reversed {
            spans.push("  reversed".dim());
        }
        Line::from(spans)
    }

    fn draw_table(&mut self, frame: &mut Frame<'_>, area: Rect) {
        let view = self.view;
        let columns = view.columns();
        let fixed: usize = columns.iter().map(|(_, width)| width.unwrap_or(0) + GAP).sum();
        // One column to the left is blank.
        let left = usize::from(area.width).saturating_sub(fixed);
        let line = |cells: &[String]| {
            let cells = cells.iter().zip(columns).enumerate().map(|(at, (cell, (_, width)))| {
                let width = width.unwrap_or(left);
                let cell = cut(cell, width);
                if view.is_text(at) { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
            });
            format!(" {}", cells.collect::<Vec<_>>().join(&" ".repeat(GAP)))
        };
        let titles: Vec<String> = columns.iter().map(|(title, _)| title.to_string()).collect();
        let rows = self.rows();
        let height = usize::from(area.height).saturating_sub(1);
        self.scrolled = self.scrolled.min(rows.len().saturating_sub(height));
        let mut lines = vec![Line::from(line(&titles)).bold()];
        lines.extend(rows.iter().skip(self.scrolled).take(height).map(|row| {
            let style = if row.warns { Style::new().fg(Color::Yellow) } else { Style::new() };
            Line::from(line(&row.cells)).style(style)
        }));
        frame.render_widget(Paragraph::new(lines), area);
    }
}

fn help(width: usize) -> Vec<Line<'static>> {
    let widest = HELP.iter().map(|(key, _)| key.chars().count()).max().unwrap_or(0);
    let lines = HELP.iter().map(|(key, about)| {
        // A key with a long name has the line above its text on a narrow screen.
        let lead = format!(" {key:<widest$}  ");
        let room = width.saturating_sub(lead.chars().count());
        Line::from(format!("{lead}{}", if room < 20 { cut(about, 20) } else { cut(about, room) }))
    });
    lines.collect()
}

/// Watches a run until the user quits.
///
/// # Errors
/// The terminal cannot be used.
pub(crate) fn watch(client: MonitorClient, socket: PathBuf, every: Duration) -> Result<(), String> {
    // Without it the terminal would stay as it is drawn on.
    let signalled = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, signalled.clone()).map_err(|error| error.to_string())?;
    }
    let (sender, answers) = sync_channel(1);
    // A thread of its own: keys are answered while the run does not.
    std::thread::spawn(move || {
        let mut client = client;
        loop {
            let answer = ask(&mut client);
            let failed = answer.is_err();
            if sender.send(answer).is_err() {
                return;
            }
            if failed {
                // A late answer would be taken for that of the next question.
                match connect(&socket) {
                    Ok(again) => client = again,
                    Err(_) => return,
                }
            }
            std::thread::sleep(every);
        }
    });
    // Its panic hook restores the terminal too.
    let mut terminal = ratatui::try_init().map_err(|error| format!("the terminal cannot be used: {error}"))?;
    let mut app = App::default();
    let watched = run(&mut app, &answers, &signalled, |app| terminal.draw(|frame| app.draw(frame)).map(|_| ()));
    ratatui::restore();
    watched.map_err(|error| format!("the terminal cannot be used: {error}"))
}

fn run(
    app: &mut App,
    answers: &Receiver<Result<Stats, String>>,
    signalled: &AtomicBool,
    mut draw: impl FnMut(&mut App) -> std::io::Result<()>,
) -> std::io::Result<()> {
    draw(app)?;
    while !app.quits && !signalled.load(Ordering::Relaxed) {
        let mut is_new = false;
        match answers.try_recv() {
            Ok(answer) => {
                app.take(answer);
                is_new = true;
            }
            Err(TryRecvError::Disconnected) => is_new = !std::mem::replace(&mut app.has_ended, true),
            Err(TryRecvError::Empty) => {}
        }
        if event::poll(POLL)? {
            match event::read()? {
                Event::Key(key) if key.kind == KeyEventKind::Press => app.key(key),
                Event::Resize(..) => {}
                _ => continue,
            }
            is_new = true;
        }
        // Drawing costs the machine that is watched.
        if is_new {
            draw(app)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::tests::stats;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn app() -> App {
        let mut app = App::default();
        app.take(Ok(stats(11.0, 1000)));
        app.take(Ok(stats(12.0, 61_000)));
        app
    }

    fn drawn(app: &mut App, width: u16, height: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| app.draw(frame)).unwrap();
        let buffer = terminal.backend().buffer().clone();
        let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_string();
        (0..height).map(line).collect()
    }

    fn press(app: &mut App, keys: &str) {
        for key in keys.chars() {
            let code = match key {
                '\t' => KeyCode::Tab,
                '↓' => KeyCode::Down,
                '↑' => KeyCode::Up,
                key => KeyCode::Char(key),
            };
            app.key(KeyEvent::new(code, KeyModifiers::NONE));
        }
    }

    #[test]
    fn the_nodes_fit_a_screen_of_80_by_24() {
        let lines = drawn(&mut app(), 80, 24);
        let expected = [
            " robot  run 3f9c1d20  12.0 s  running  failed 2  lost 17",
            "  nodes  edges  paths  workers  graph",
            " node                  calls/s      p50      p99      max wait p99 failed   lost",
            " camera                  60000  1.25 µs  48.0 µs  2.00 ms",
            " lidar                   60000  1.25 µs  48.0 µs  2.00 ms",
            " resize                  60000  1.25 µs  48.0 µs  2.00 ms        –",
            " net                     60000  1.25 µs  48.0 µs  2.00 ms        –      2     17",
            " fuse_camer…f_the_head   60000  1.25 µs  48.0 µs  2.00 ms        –",
            " log                     60000  1.25 µs  48.0 µs  2.00 ms        –",
            " evil\\u{1b}[2J           60000  1.25 µs  48.0 µs  2.00 ms        –",
            "",
        ];
        assert_eq!(lines[..expected.len()], expected, "{lines:#?}");
        assert!(lines[23].starts_with(" q quit  tab next view"), "{}", lines[23]);
    }

    #[test]
    fn keys_lead_to_every_view() {
        let mut app = app();
        for (keys, expected) in [
            ("\t", " resize/out -> net/in "),
            ("\t", " camera -> log "),
            ("\t", " limen-lidar "),
            ("\t", "     └ fuse_c"),
            ("\t", " camera "),
            ("g", "   └ net"),
            ("?", "messages lost so far"),
            ("x", "   └ net"),
        ] {
            press(&mut app, keys);
            let lines = drawn(&mut app, 80, 24);
            assert!(
                lines.iter().any(|line| line.starts_with(expected) || line.contains(expected.trim())),
                "{lines:#?}"
            );
        }
        press(&mut app, "q");
        assert!(app.quits);
        app.quits = false;
        app.key(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL));
        assert!(app.quits);
    }

    #[test]
    fn rows_are_sorted_and_scrolled() {
        let mut app = app();
        press(&mut app, "s");
        let lines = drawn(&mut app, 80, 24);
        assert!(lines[1].contains("by node") && lines[3].starts_with(" camera"), "{lines:#?}");
        press(&mut app, "r");
        let lines = drawn(&mut app, 80, 24);
        assert!(lines[1].contains("by node  reversed") && lines[3].starts_with(" resize"), "{lines:#?}");
        press(&mut app, "sssssss");
        assert!(drawn(&mut app, 80, 24)[3].starts_with(" net "), "by losses");
        press(&mut app, "s");
        assert!(drawn(&mut app, 80, 24)[3].starts_with(" camera"), "the order of the graph");
        // Three rows fit, and scrolling ends at the last.
        press(&mut app, "↓");
        let lines = drawn(&mut app, 80, 7);
        assert!(lines[3].starts_with(" lidar"), "{lines:#?}");
        press(&mut app, &"↓".repeat(50));
        assert!(drawn(&mut app, 80, 7)[5].starts_with(" evil"), "the last");
        press(&mut app, &"↑".repeat(50));
        assert!(drawn(&mut app, 80, 7)[3].starts_with(" camera"));
    }

    #[test]
    fn no_size_of_the_screen_is_too_small() {
        let mut app = app();
        for view in View::ALL {
            app.show(view);
            for helps in [false, true] {
                app.helps = helps;
                for (width, height) in [(1, 1), (3, 2), (20, 5), (60, 4), (300, 90)] {
                    drawn(&mut app, width, height);
                }
            }
        }
    }

    #[test]
    fn nothing_from_the_graph_controls_the_terminal() {
        let mut app = app();
        app.take(Err("\x1b]0;x\x07".into()));
        for view in View::ALL {
            app.show(view);
            assert!(!drawn(&mut app, 200, 24).concat().contains(|c: char| c.is_control()));
        }
    }

    #[test]
    fn an_end_and_a_late_answer_are_said() {
        let mut app = App::default();
        assert_eq!(drawn(&mut app, 80, 24)[0], " waiting for the run");
        app.take(Err("no answer within 5 s".into()));
        assert_eq!(drawn(&mut app, 80, 24)[0], " no answer within 5 s");
        app.take(Ok(stats(3.0, 10)));
        assert!(drawn(&mut app, 80, 24)[0].contains("  running  "));
        app.take(Err("no answer within 5 s".into()));
        assert!(drawn(&mut app, 80, 24)[0].contains("  no answer within 5 s  "));
        app.has_ended = true;
        assert!(drawn(&mut app, 80, 24)[0].contains("  ended  "));
    }
}
