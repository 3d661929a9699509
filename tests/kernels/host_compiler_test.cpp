// The host device's compiler: which program it is, whose fault a failure is, and what its images depend on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "base/env.h"
#include "conformance/driver_under_test.h"
#include "drivers/host/compiler.h"
#include "drivers/host/cpu_features.h"
#include "jit/compile_cache.h"
#include "jit/dialect.h"

namespace mojo::host {
namespace {

namespace fs = std::filesystem;

constexpr const char* nothing = "extern \"C\" MOJO_KERNEL void f() {}\n";

class HostCompilers : public testing::Test {
 public:
  HostCompilers() {
    std::string pattern = (fs::temp_directory_path() / "mojo-compiler-test-XXXXXX").string();
    folder_ = mkdtemp(pattern.data());
  }
  ~HostCompilers() override { fs::remove_all(folder_); }

  void write(const std::string& name, const std::string& text) const { std::ofstream(folder_ / name) << text; }
  // A compiler that answers questions about itself, and does `compile` when it is to compile.
  std::string script(const std::string& compile) const {
    write("compiler",
          "#!/bin/sh\ncase \"$*\" in\n*--version*) echo fake 1.0; exit 0;;\n*-fsyntax-only*) exit 0;;\nesac\n" +
              compile + "\n");
    fs::permissions(folder_ / "compiler", fs::perms::owner_all);
    return (folder_ / "compiler").string();
  }
  static Status compile(driver::Compiler& compiler, const std::string& source, std::vector<std::string> options = {},
                        driver::CompileResult* out = nullptr) {
    driver::CompileResult ignored;
    return compiler.compile(request(source, options), out != nullptr ? *out : ignored);
  }
  static driver::CompileRequest request(const std::string& source, const std::vector<std::string>& options) {
    static const std::vector<std::string> entries{"f"};
    driver::CompileRequest r;
    r.source = source;
    r.entries = entries;
    r.headers = jit::dialect_headers();
    r.options = options;
    return r;
  }

 protected:
  fs::path folder_;
};

// What compilers said, and whether it is the caller's fault.
struct Said {
  bool callers;
  const char* text;
};

constexpr Said said[] = {
    {false, "g++: fatal error: Killed signal terminated program cc1plus\ncompilation terminated."},
    {false, "g++: fatal error: cannot execute 'as': execvp: No such file or directory\ncompilation terminated."},
    {false, "collect2: fatal error: cannot find 'ld'\ncompilation terminated."},
    {false, "/usr/bin/ld: final link failed: No space left on device\ncollect2: error: ld returned 1 exit status"},
    {false,
     "kernel.cpp:7:1: fatal error: error writing to /tmp/ccX.s: No space left on device\ncompilation terminated."},
    {false, "{standard input}: Fatal error: can't write 20 bytes to section .text of k.o: 'No space left on device'"},
    {false, "cc1plus: out of memory allocating 65536 bytes after a total of 1990656 bytes"},
    {false, "kernel.cpp:3:5: internal compiler error: Segmentation fault\nPlease submit a full bug report"},
    {false,
     "clang: error: unable to execute command: Killed\nclang: error: clang frontend command failed due to signal"},
    {false, "error: unable to open output file 'x.o': 'Too many open files'"},
    {false, ""},
    {true, "kernel.cpp: In function 'void f()':\nkernel.cpp:3:5: error: 'x' was not declared in this scope"},
    {true, "kernel.cpp:3:5: error: use of undeclared identifier 'x'\n1 error generated."},
    {true, "In file included from kernel.cpp:1:\n/there/x.h:3: error: expected ';'"},
    {true, "kernel.cpp:1:10: fatal error: x.h: No such file or directory\ncompilation terminated."},
    {true, "entry of the device function:1:17: error: 'g' was not declared in this scope"},
    {true, "/tmp/ccX.s: Assembler messages:\n/tmp/ccX.s:12: Error: no such instruction: `nonsense'"},
    {true, "/usr/bin/ld: /tmp/ccX.o: in function `f':\nkernel.cpp:(.text+0xb): undefined reference to `g()'"},
    {true, "g++: error: unrecognized command-line option '-fno-such-option'"},
    {true, "clang: error: unknown argument: '-fno-such-option'"},
    {true, "cc1plus: error: bad value ('nonsense') for '-mtune=' switch"},
    {true, "error: unknown target CPU 'nonsense'"},
    {true, "/usr/bin/ld: cannot find -lnone: No such file or directory\ncollect2: error: ld returned 1 exit status"},
};

TEST_F(HostCompilers, OnlyWhatIsTheCallersFaultIsInvalid) {
  for (const Said& each : said) {
    write("said", std::string(each.text) + "\n");
    HostCompiler compiler(script("cat '" + (folder_ / "said").string() + "'; exit 1"));
    const Status status = compile(compiler, nothing, {"-fno-such-option", "-mtune=nonsense", "-lnone"});
    EXPECT_EQ(status.code(), each.callers ? StatusCode::invalid_argument : StatusCode::unavailable) << each.text;
    EXPECT_THAT(status.message(), testing::HasSubstr(each.text));
  }
}

TEST_F(HostCompilers, ACompilerThatWasKilledIsTriedAgain) {
  const std::string marker = (folder_ / "marker").string();
  HostCompiler compiler(script(
      "if [ -e " + marker + " ]; then echo image > image.so; echo 'image.so: kernel.cpp' > dependencies; exit 0; fi\n" +
      "touch " + marker + "\necho 'g++: fatal error: Killed signal terminated program cc1plus'; exit 1"));
  jit::CompileCache cache({.directory = ""});
  jit::CompiledImagePtr image;
  const std::string source = nothing;
  EXPECT_EQ(cache.get(compiler, request(source, {}), image).code(), StatusCode::unavailable);
  MOJO_OK(cache.get(compiler, request(source, {}), image));
  EXPECT_EQ(image->bytes.size(), 6U);
  EXPECT_EQ(cache.statistics().misses, 2U);
  MOJO_OK(cache.get(compiler, request(source, {}), image));
  EXPECT_EQ(cache.statistics().memory_hits, 1U);

  HostCompiler killed(script("kill -KILL $$"));
  EXPECT_EQ(compile(killed, nothing).code(), StatusCode::unavailable);
}

TEST_F(HostCompilers, APreferredProgramThatIsNoneGivesWayToAnother) {
  for (const char* preferred : {"", "ccache g++", "g++ -m64", "/none/g++", "no-such-program", "/", "/bin/false"}) {
    HostCompiler compiler("", preferred);
    MOJO_OK(compile(compiler, nothing));
  }
  std::string text;
  HostCompiler preferred("", script("exit 1"));
  MOJO_OK(preferred.identity(text));
  EXPECT_THAT(text, testing::HasSubstr("fake 1.0"));
  for (const char* wanted : {"ccache g++", "/none/g++", "no-such-program"}) {
    HostCompiler compiler(wanted, "g++");
    const Status status = compile(compiler, nothing);
    EXPECT_EQ(status.code(), StatusCode::unavailable);
    EXPECT_THAT(status.message(), testing::HasSubstr(wanted));
    EXPECT_THAT(status.message(), testing::HasSubstr("TORCH_MOJO_BACKEND_CXX"));
  }
  HostCompiler broken("/bin/false", "g++");
  EXPECT_EQ(compile(broken, nothing).code(), StatusCode::unavailable);
}

TEST_F(HostCompilers, ARelativePathIsOfTheFolderInWhichItWasLookedFor) {
  const std::string program = base::find_program("c++");
  ASSERT_NE(program, "");
  fs::create_symlink(program, folder_ / "mine");
  const fs::path here = fs::current_path();
  fs::current_path(folder_);
  HostCompiler compiler("./mine"), preferred("", "./mine");
  const Status first = compile(compiler, nothing), second = compile(preferred, nothing);
  fs::current_path(here);
  MOJO_OK(first);
  MOJO_OK(second);
  MOJO_OK(compile(compiler, nothing));
}

TEST_F(HostCompilers, TheEnvironmentDoesNotChangeWhatIsIncluded) {
  write("value.h", "inline int value() { return 1; }\n");
  for (const char* name : {"CPATH", "CPLUS_INCLUDE_PATH", "C_INCLUDE_PATH"}) setenv(name, folder_.c_str(), 1);
  for (const char* name : {"COMPILER_PATH", "GCC_EXEC_PREFIX"}) setenv(name, "/none/", 1);
  HostCompiler compiler("");
  const Status status = compile(compiler, "#include <value.h>\nextern \"C\" MOJO_KERNEL void f() { (void)value(); }\n");
  const Status plain = compile(compiler, nothing);
  for (const char* name : {"CPATH", "CPLUS_INCLUDE_PATH", "C_INCLUDE_PATH", "COMPILER_PATH", "GCC_EXEC_PREFIX"}) {
    unsetenv(name);
  }
  EXPECT_EQ(status.code(), StatusCode::invalid_argument);
  EXPECT_THAT(status.message(), testing::HasSubstr("value.h"));
  MOJO_OK(plain);
}

// Of every compiler there is.
class Includes : public HostCompilers, public testing::WithParamInterface<const char*> {
 public:
  void SetUp() override {
    if (base::find_program(GetParam()).empty()) GTEST_SKIP() << "no " << GetParam();
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    if (std::string(GetParam()) != "g++") GTEST_SKIP() << "the sanitizer's runtime is GCC's";
#endif
  }
  std::string image(jit::CompileCache& cache, HostCompiler& compiler, const std::string& source,
                    const std::vector<std::string>& options) {
    jit::CompiledImagePtr out;
    const Status status = cache.get(compiler, request(source, options), out);
    if (!status.ok()) return status.message();
    return {reinterpret_cast<const char*>(out->bytes.data()), out->bytes.size()};
  }
};
std::string name_of_compiler(const testing::TestParamInfo<const char*>& info) {
  constexpr const char* names[] = {"gcc", "clang", "clang_14"};
  return names[info.index];
}
INSTANTIATE_TEST_SUITE_P(Compilers, Includes, testing::Values("g++", "clang++", "clang++-14"), name_of_compiler);

TEST_P(Includes, WhatDependsOnFilesThatTheKeyHasNotIsNotKept) {
  HostCompiler compiler(GetParam());
  const std::string uses = "extern \"C\" MOJO_KERNEL void f(mojo::Buffer<int> x) { x[0] = value(); }\n";
  struct Way {
    std::string source;
    std::vector<std::string> options;
  };
  const std::string header = (folder_ / "value.h").string();
  for (const Way& way :
       {Way{"#include \"value.h\"\n" + uses, {"-I" + folder_.string()}},
        Way{"#include <value.h>\n" + uses, {"-isystem" + folder_.string()}}, Way{uses, {"-include" + header}},
        Way{uses, {"-include", header}}, Way{"#include \"" + header + "\"\n" + uses, {}}}) {
    jit::CompileCache cache({.directory = (folder_ / "cache").string()});
    write("value.h", "inline int value() { return 1234567; }\n");
    const std::string first = image(cache, compiler, way.source, way.options);
    write("value.h", "inline int value() { return 7654321; }\n");
    const std::string second = image(cache, compiler, way.source, way.options);
    write("value.h", "nonsense\n");
    EXPECT_THAT(image(cache, compiler, way.source, way.options), testing::HasSubstr("nonsense"));
    write("value.h", "inline int value() { return 1234567; }\n");
    EXPECT_EQ(image(cache, compiler, way.source, way.options), first);
    EXPECT_NE(first, second);
    EXPECT_EQ(cache.statistics().misses, 4U);
    EXPECT_EQ(cache.statistics().written, 0U);
    EXPECT_EQ(cache.statistics().memory_hits, 0U);
  }
}

TEST_P(Includes, WhatDependsOnTheRequestAloneIsKept) {
  HostCompiler compiler(GetParam());
  jit::CompileCache cache({.directory = ""});
  for (int i = 0; i < 2; ++i) {
    image(cache, compiler, nothing, {});
    image(cache, compiler, nothing, {"-I" + folder_.string(), "-DA=\"/b\"", "-O1"});  // nothing is there to include
    image(cache, compiler, "#include <stddef.h>\n" + std::string(nothing), {});       // the compiler's own
    image(cache, compiler, "nonsense", {"-DA"});
    EXPECT_EQ(cache.statistics().misses, 4U);
  }
}

TEST_P(Includes, AMissingHeaderMayBeThereTheNextTime) {
  HostCompiler compiler(GetParam());
  jit::CompileCache cache({.directory = ""});
  const std::vector<std::string> options{"-I" + folder_.string()};
  const std::string source = "#include \"value.h\"\n" + std::string(nothing);
  EXPECT_THAT(image(cache, compiler, source, options), testing::HasSubstr("value.h"));
  write("value.h", "");
  jit::CompiledImagePtr out;
  MOJO_OK(cache.get(compiler, request(source, options), out));
}

TEST_P(Includes, AFrameThatNoStackHoldsIsAClearError) {
  HostCompiler compiler(GetParam());
  const auto source = [](int floats, bool barrier) {
    return "MOJO_DEVICE void use(float* p) { asm volatile(\"\" : : \"r\"(p) : \"memory\"); }\n"
           "extern \"C\" MOJO_KERNEL void f(mojo::Buffer<float> x) {\n  float t[" +
           std::to_string(floats) + "];\n  use(t);\n" + (barrier ? "  mojo::barrier();\n" : "") +
           "  x[mojo::global_index()] = t[mojo::thread_index()];\n}\n";
  };
  const Status status = compile(compiler, source(40'000, true));
  EXPECT_EQ(status.code(), StatusCode::invalid_argument);
  EXPECT_THAT(status.message(), testing::HasSubstr("where there are barriers a function may keep 98304"));
  EXPECT_THAT(status.message(), testing::HasSubstr("put large arrays into shared or global memory"));
  EXPECT_EQ(compile(compiler, source(40'000, true), {"-Werror", "-Wall"}).message().find("-Werror=frame"),
            std::string::npos);
  MOJO_OK(compile(compiler, source(20'000, true)));
  MOJO_OK(compile(compiler, source(40'000, false)));
  MOJO_OK(compile(compiler, source(40'000, false), {"-Werror"}));
  EXPECT_EQ(compile(compiler, source(1'000'000, false)).code(), StatusCode::invalid_argument);
}

TEST(CpuFeatures, AreLookedAtOnce) { EXPECT_EQ(&cpu_features(), &cpu_features()); }

}  // namespace
}  // namespace mojo::host
