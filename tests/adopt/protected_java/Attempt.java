import com.github.jedis.lock.JedisLock;
import redis.clients.jedis.Jedis;

/** jedis-lock, unchanged: {@code Attempt PORT KEY} tries to take the lock, and prints what the library says. */
public class Attempt {
    public static void main(String[] arguments) throws Exception {
        Jedis jedis = new Jedis("127.0.0.1", Integer.parseInt(arguments[0]));
        JedisLock lock = new JedisLock(jedis, arguments[1], 0, 60_000);
        try {
            System.out.println(lock.acquire() ? "acquired" : "refused");
        } catch (NumberFormatException notATime) {
            System.out.println("refused: the value is no time");
        }
        lock.release();
        System.out.println("released");
    }
}
