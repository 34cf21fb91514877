package redislock;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import javax.tools.JavaCompiler;
import javax.tools.ToolProvider;

/** Programs of the README and other pages, unchanged. */
public final class Readme {
  private Readme() {}

  /**
   * Compiles the program of the README with this class.
   *
   * @param name of its class
   * @param folder for its files
   * @param port replaces 6379
   */
  public static void compile(String name, Path folder, int port) {
    compile(Path.of("..", "README.md"), name, folder, port);
  }

  /**
   * Compiles the program of a page with this class.
   *
   * @param file of the page
   * @param name of its class
   * @param folder for its files
   * @param port replaces 6379
   */
  public static void compile(Path file, String name, Path folder, int port) {
    try {
      String page = Files.readString(file);
      Matcher blocks = Pattern.compile("```java\\n(.*?)```", Pattern.DOTALL).matcher(page);
      while (blocks.find()) {
        if (blocks.group(1).contains("class " + name + " ")) {
          Path source = folder.resolve(name + ".java");
          // On a busy machine, a new virtual machine may need more than five seconds to connect.
          String program = blocks.group(1).replace("ofSeconds(5)", "ofSeconds(60)");
          Files.writeString(source, program.replace("6379", "" + port));
          JavaCompiler compiler = ToolProvider.getSystemJavaCompiler();
          List<String> options =
              List.of("-parameters", "-cp", path(), "-d", folder.toString(), source.toString());
          if (compiler.run(null, null, null, options.toArray(String[]::new)) != 0) {
            throw new AssertionError("the program " + name + " does not compile");
          }
          return;
        }
      }
      throw new AssertionError(file + " has no program " + name);
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  /**
   * Starts a program that was compiled.
   *
   * @param folder of its files, where it runs
   * @param arguments options of the virtual machine, the class, and its arguments
   * @return the process; what it prints is in one stream
   */
  public static Process start(Path folder, String... arguments) {
    List<String> command = new java.util.ArrayList<>();
    command.add(Path.of(System.getProperty("java.home"), "bin", "java").toString());
    // As for the tests themselves: the optimizing compiler would delay the first connection of a
    // short program.
    command.add("-XX:TieredStopAtLevel=1");
    command.addAll(List.of("-cp", folder + java.io.File.pathSeparator + path()));
    command.addAll(List.of(arguments));
    try {
      return new ProcessBuilder(command)
          .directory(folder.toFile())
          .redirectErrorStream(true)
          .start();
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  private static String path() {
    return System.getProperty("java.class.path");
  }
}
