module github.com/redis-lock/redis-lock/clients/go/tests

go 1.24.0

require (
	github.com/redis-lock/redis-lock/clients/go v1.0.0
	github.com/redis/go-redis/v9 v9.17.3
	go.uber.org/goleak v1.3.0
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/dgryski/go-rendezvous v0.0.0-20200823014737-9f7001d12a5f // indirect
)

replace github.com/redis-lock/redis-lock/clients/go => ../
