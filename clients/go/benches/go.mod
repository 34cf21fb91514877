module github.com/redis-lock/redis-lock/clients/go/benches

go 1.24.0

replace github.com/redis-lock/redis-lock/clients/go => ../
