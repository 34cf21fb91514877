// One client of a Node library, unchanged: `worker.js LIBRARY turns|hold PORT KEY TURNS` (see `run` for the modes).
'use strict';

const [library, mode, port, key, turns] = process.argv.slice(2);
const modules = require('node:module').createRequire(process.env.ADOPT_NODE + '/');
const Redis = modules('ioredis');
const client = new Redis(Number(port));
const leaseMs = 2000;

const libraries = {
    redlock: async () => {
        const { default: Redlock } = modules('redlock');
        const redlock = new Redlock([client], { retryCount: 2000, retryDelay: 5, retryJitter: 2 });
        return async () => {
            const lock = await redlock.acquire([key], leaseMs);
            return () => lock.release();
        };
    },
    'redis-semaphore': async () => {
        const { Mutex } = modules('redis-semaphore');
        return async () => {
            // The library adds the prefix `mutex:` itself.
            const options = { lockTimeout: leaseMs, refreshInterval: 0, acquireTimeout: 60000, retryInterval: 5 };
            const mutex = new Mutex(client, key, options);
            await mutex.acquire();
            return () => mutex.release();
        };
    },
};

async function main() {
    const acquire = await libraries[library]();
    if (mode === 'hold') {
        await acquire();
        console.log('held');
        await new Promise((resolve) => setTimeout(resolve, 600000));
    }
    for (let turn = 0; turn < Number(turns); turn++) {
        const release = await acquire();
        if ((await client.incr('inside')) !== 1 || (await client.decr('inside')) !== 0) throw new Error('not alone');
        await release();
    }
    console.log('done');
    client.disconnect();
}

main().catch((error) => { console.error(error); process.exit(1); });
