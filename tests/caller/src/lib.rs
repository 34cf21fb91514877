//! Another module, for tests: `TEST.CALL command [arg …]` calls a command as modules do, and answers with its reply.

use redis_module::{redis_module, Context, NextArg, RedisError, RedisResult, RedisString};

fn call(ctx: &Context, args: Vec<RedisString>) -> RedisResult {
    let mut args = args.into_iter().skip(1);
    let command = args.next_arg()?;
    let args: Vec<RedisString> = args.collect();
    let command = command.try_as_str().map_err(|_| RedisError::Str("ERR the command is no text"))?;
    ctx.call(command, args.iter().collect::<Vec<_>>().as_slice())
}

redis_module! {
    name: "test-caller",
    version: 1,
    allocator: (std::alloc::System, std::alloc::System),
    data_types: [],
    commands: [
        ["test.call", call, "write", 0, 0, 0, ""],
    ],
}
