//! Who is admitted beside whom, and the lease that each holder has of its own.

use super::*;

mod admission {
    use super::*;

    #[test]
    fn many_readers() {
        each_protocol(|client| {
            let fences: Vec<i64> = (0..100).map(|n| read(client, &format!("r{n}"))).collect();
            assert!(fences.windows(2).all(|pair| pair[0] < pair[1]), "a fence for each, and they grow");
            assert!(client.run("RWLOCK.ACQUIRE k w WRITE").is_nil());
            let info = client.run("LOCK.INFO k");
            assert_eq!(info.get("fence"), &Reply::Int(fences[99]), "that of the latest grant");
            assert_eq!(info.get("holders").items().len(), 100);
            for (n, fence) in fences.iter().enumerate() {
                assert!(client.run("RWLOCK.ACQUIRE k w WRITE").is_nil());
                assert_eq!(held(client, "k", &format!("r{n}")).map(|held| held.0), Some(*fence));
                release(client, &format!("r{n} READ"), 0);
            }
            assert_eq!(client.run("EXISTS k"), Reply::Int(0));
            assert!(write(client, "w") > fences[99]);
        });
    }

    #[test]
    fn or_one_writer() {
        each_protocol(|client| {
            let fence = write(client, "a");
            for line in ["b READ", "b WRITE", "c READ HOLDS 3", "* WRITE", "* READ"] {
                assert!(client.run(&format!("RWLOCK.ACQUIRE k {line}")).is_nil(), "{line}");
            }
            assert_eq!(rows(client, "k"), [row("a", "write", 1)]);
            release(client, "a WRITE", 0);
            assert!(write(client, "b") > fence);
        });
    }

    #[test]
    fn it_is_reentrant_per_owner_and_mode() {
        each_protocol(|client| {
            let fence = client.run("RWLOCK.ACQUIRE k a WRITE").fence();
            for (line, holds) in [("a WRITE", 2), ("a READ", 1), ("a READ", 2), ("a WRITE", 3), ("a READ", 3)] {
                let again = client.run(&format!("RWLOCK.ACQUIRE k {line}"));
                assert_eq!((again.fence(), again.items()[2].int()), (fence, holds), "{line}");
            }
            assert_eq!(rows(client, "k"), [row("a", "write", 3), row("a", "read", 3)]);
            assert_eq!(held(client, "k", "a").map(|held| (held.0, held.1)), Some((fence, 6)));
            release(client, "a READ HOLDS 0", 0);
            release(client, "a WRITE", 2);
            assert_eq!(rows(client, "k"), [row("a", "write", 2)]);
            assert!(client.run("RWLOCK.ACQUIRE k b READ").is_nil());
        });
    }

    #[test]
    fn readers_are_reentrant_each_for_themselves() {
        each_protocol(|client| {
            let a = read(client, "a");
            let b = read(client, "b");
            assert_eq!(read(client, "a"), a);
            assert_eq!(read(client, "a"), a);
            assert_eq!(read(client, "b"), b);
            assert_eq!(rows(client, "k"), [row("a", "read", 3), row("b", "read", 2)]);
            release(client, "a READ HOLDS 0", 0);
            assert_eq!(rows(client, "k"), [row("b", "read", 2)]);
        });
    }

    #[test]
    fn the_writer_keeps_reading_when_it_gives_write_back() {
        each_protocol(|client| {
            let fence = write(client, "a");
            assert_eq!(read(client, "a"), fence);
            assert!(client.run("RWLOCK.ACQUIRE k b READ").is_nil(), "still a writer");
            release(client, "a WRITE", 0);
            assert_eq!(rows(client, "k"), [row("a", "read", 1)]);
            assert_eq!(held(client, "k", "a").map(|held| (held.0, held.1)), Some((fence, 1)));
            assert!(read(client, "b") > fence, "a downgrade lets readers in");
            assert!(client.run("RWLOCK.ACQUIRE k c WRITE").is_nil());
            release(client, "a WRITE", -1);
        });
    }

    #[test]
    fn the_only_reader_may_write_with_a_new_fence() {
        each_protocol(|client| {
            let before = client.run("RWLOCK.ACQUIRE k a READ HOLDS 2").fence();
            let upgrade = client.run("RWLOCK.ACQUIRE k a WRITE");
            assert!(upgrade.fence() > before, "an upgrade is a new grant");
            assert_eq!(upgrade.items()[2], Reply::Int(1), "holds of that mode");
            assert_eq!(held(client, "k", "a").map(|held| (held.0, held.1)), Some((upgrade.fence(), 3)));
            assert_eq!(client.run("LOCK.INFO k").get("fence"), &Reply::Int(upgrade.fence()));
            assert_eq!(rows(client, "k"), [row("a", "write", 1), row("a", "read", 2)]);
            assert!(client.run("RWLOCK.ACQUIRE k b READ").is_nil());
            assert_eq!(read(client, "a"), upgrade.fence(), "reentering is no new grant");
            assert_eq!(write(client, "a"), upgrade.fence());
            release(client, "a WRITE HOLDS 0", 0);
            assert_eq!(rows(client, "k"), [row("a", "read", 3)]);
            assert!(read(client, "b") > upgrade.fence());
        });
    }

    #[test]
    fn every_upgrade_of_the_same_owner_is_a_new_grant() {
        let server = Server::start();
        let mut client = server.client();
        let mut last = read(&mut client, "a");
        for _ in 0..5 {
            let fence = write(&mut client, "a");
            assert!(fence > last);
            release(&mut client, "a WRITE", 0);
            last = fence;
        }
    }

    #[test]
    fn without_block_an_upgrade_among_others_is_nil() {
        each_protocol(|client| {
            read(client, "a");
            read(client, "b");
            let before = client.stored("k");
            assert!(client.run("RWLOCK.ACQUIRE k a WRITE").is_nil());
            assert_eq!(client.stored("k"), before);
            release(client, "b READ", 0);
            assert!(client.run("RWLOCK.ACQUIRE k a WRITE").fence() > 0);
        });
    }
}

mod leases {
    use super::*;

    #[test]
    fn each_holder_has_one_of_its_own_and_the_key_lives_as_long_as_the_longest() {
        each_protocol(|client| {
            client.run("RWLOCK.ACQUIRE k a READ PX 50000");
            client.run("RWLOCK.ACQUIRE k b READ PX 200000");
            client.run("RWLOCK.ACQUIRE k c READ PX 20000");
            for (owner, ms) in [("a", 50_000), ("b", 200_000), ("c", 20_000)] {
                assert_just_began(left(client, "k", owner), ms);
                assert_eq!(lease(client, "k", owner), ms);
            }
            assert_just_began(client.pttl("k"), 200_000);
            release(client, "b READ", 0);
            assert_just_began(client.pttl("k"), 50_000);
            client.run("RWLOCK.ACQUIRE k d READ PERSIST");
            assert_eq!(client.pttl("k"), -1);
            assert_eq!(left(client, "k", "d"), -1);
            release(client, "d READ", 0);
            assert_just_began(client.pttl("k"), 50_000);
        });
    }

    #[test]
    fn it_is_one_for_both_modes() {
        each_protocol(|client| {
            client.run("RWLOCK.ACQUIRE k a WRITE PX 20000");
            client.run("RWLOCK.ACQUIRE k a READ PX 90000");
            let info = client.run("LOCK.INFO k");
            for held in info.get("holders").items() {
                assert_just_began(held.get("ttl").int(), 90_000);
            }
            release(client, "a READ", 0);
            assert_just_began(left(client, "k", "a"), 90_000);
            assert_eq!(client.run("RWLOCK.RENEW k a PX 40000"), Reply::Int(1));
            client.run("RWLOCK.ACQUIRE k a READ PX 1000");
            release(client, "a WRITE", 0);
            assert_just_began(left(client, "k", "a"), 40_000);
        });
    }

    #[test]
    fn acquiring_again_never_shortens_it() {
        each_protocol(|client| {
            client.run("RWLOCK.ACQUIRE k a READ PX 60000");
            let before = client.stored("k").1;
            client.run("RWLOCK.ACQUIRE k a READ PX 1000").fence();
            client.run("RWLOCK.ACQUIRE k a WRITE PX 1000").fence();
            assert_eq!(client.stored("k").1, before);
            assert!(left(client, "k", "a") > 30_000);
            client.run("RWLOCK.ACQUIRE k a READ PX 200000").fence();
            assert_just_began(left(client, "k", "a"), 200_000);
            client.run("RWLOCK.ACQUIRE k a READ PERSIST").fence();
            client.run("RWLOCK.ACQUIRE k a READ PX 1000").fence();
            assert_eq!((client.pttl("k"), left(client, "k", "a")), (-1, -1));
        });
    }

    #[test]
    fn a_renewal_is_that_owners_alone_and_may_shorten() {
        each_protocol(|client| {
            client.run("RWLOCK.ACQUIRE k a READ PX 50000");
            client.run("RWLOCK.ACQUIRE k b READ PX 90000");
            assert_eq!(client.run("RWLOCK.RENEW k a PX 300000"), Reply::Int(1));
            assert_just_began(left(client, "k", "a"), 300_000);
            assert_just_began(left(client, "k", "b"), 90_000);
            assert_just_began(client.pttl("k"), 300_000);
            assert_eq!(client.run("RWLOCK.RENEW k a PX 20000"), Reply::Int(1));
            assert_just_began(left(client, "k", "a"), 20_000);
            assert_just_began(client.pttl("k"), 90_000);
            assert_eq!(client.run("RWLOCK.RENEW k a"), Reply::Int(1), "with the length last given");
            assert_just_began(left(client, "k", "a"), 20_000);
        });
    }

    #[test]
    fn a_reader_whose_lease_has_ended_is_gone_for_every_command_while_others_read_on() {
        each_protocol(|client| {
            client.run("RWLOCK.ACQUIRE k short READ HOLDS 2 PX 60");
            client.run("RWLOCK.ACQUIRE k long READ PX 60000");
            until_ended(client, "k", "short");
            assert_eq!(rows(client, "k"), [row("long", "read", 1)]);
            assert_eq!(client.run("RWLOCK.RENEW k short"), Reply::Int(0));
            release(client, "short READ", -1);
            let again = client.run("RWLOCK.ACQUIRE k short READ PX 60000");
            assert_eq!(again.items()[2], Reply::Int(1), "a first hold, not a third");
            assert!(again.fence() > held(client, "k", "long").expect("it reads").0);
        });
    }

    #[test]
    fn the_end_of_the_other_readers_lease_makes_the_only_reader() {
        each_protocol(|client| {
            client.run("RWLOCK.ACQUIRE k short READ PX 60000");
            client.run("RWLOCK.ACQUIRE k long READ PX 60000");
            assert!(client.run("RWLOCK.ACQUIRE k long WRITE").is_nil());
            client.run("RWLOCK.RENEW k short PX 60");
            until_ended(client, "k", "short");
            assert!(client.run("RWLOCK.ACQUIRE k long WRITE").fence() > 0);
            assert_eq!(rows(client, "k"), [row("long", "write", 1), row("long", "read", 1)]);
        });
    }

    #[test]
    fn the_end_of_a_lease_ends_both_modes() {
        each_protocol(|client| {
            client.run("RWLOCK.ACQUIRE k a WRITE HOLDS 2 PX 40");
            client.run("RWLOCK.ACQUIRE k a READ HOLDS 3 PX 40");
            until_ended(client, "k", "a");
            release(client, "a WRITE", -1);
            release(client, "a READ", -1);
            assert_eq!(client.run("RWLOCK.ACQUIRE k b WRITE").items()[2], Reply::Int(1));
        });
    }
}
