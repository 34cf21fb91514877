module github.com/redis-lock/redis-lock/clients/go/benches

go 1.24.0

require (
	github.com/bsm/redislock v0.9.4
	github.com/go-redsync/redsync/v4 v4.14.0
	github.com/redis-lock/redis-lock/clients/go v0.1.0
	github.com/redis/go-redis/v9 v9.17.3
)

replace github.com/redis-lock/redis-lock/clients/go => ../
