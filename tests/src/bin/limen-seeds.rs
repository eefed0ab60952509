//! Simulates random graphs, one for each seed: `limen-seeds FIRST COUNT`. Prints each violation,
//! and exits with 1 if there is any.

fn main() {
    let mut args = std::env::args().skip(1).map(|arg| arg.parse::<u64>());
    let (Some(Ok(first)), Some(Ok(count)), None) = (args.next(), args.next(), args.next()) else {
        eprintln!("usage: limen-seeds FIRST COUNT");
        std::process::exit(2);
    };
    // Panics of node code are part of the test; hide their messages.
    std::panic::set_hook(Box::new(|_| {}));
    let mut wrong = 0u64;
    for seed in first..first.saturating_add(count) {
        let found = std::panic::catch_unwind(|| limen_tests::random::check(seed));
        let outside = |panic: Box<dyn std::any::Any + Send>| {
            let text = panic.downcast::<String>().map_or_else(|_| "in the engine".to_string(), |text| *text);
            let drawn = limen_tests::random::draw(seed, false).yaml;
            Err(format!("seed {seed}: panicked outside a node: {text}\n{drawn}"))
        };
        if let Err(text) = found.unwrap_or_else(outside) {
            wrong += 1;
            println!("{text}");
        }
    }
    println!("{wrong} of {count} seeds break a promise");
    std::process::exit(i32::from(wrong > 0));
}
