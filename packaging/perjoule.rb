# Homebrew formula. Homebrew installs formulae only from taps, so put it into your own; `make dist`
# makes the archive:
#   brew tap-new $USER/local
#   cp packaging/perjoule.rb "$(brew --repository)/Library/Taps/$USER/homebrew-local/Formula/"
#   HOMEBREW_PERJOULE_ARCHIVE=$PWD/dist/perjoule-0.1.0.tar.xz brew install --build-from-source $USER/local/perjoule
class Perjoule < Formula
  desc "Energy profiler for transformer inference"
  # No homepage: the project has no public address. Only `brew audit` requires one; a published tap
  # should add its own.
  url "file://#{ENV.fetch("HOMEBREW_PERJOULE_ARCHIVE", "/usr/local/src/perjoule-0.1.0.tar.xz")}"
  version "0.1.0"
  license "Apache-2.0"

  depends_on "meson" => :build
  depends_on "ninja" => :build
  depends_on "node" => :build
  depends_on "pkgconf" => :build
  depends_on "brotli" => :build
  depends_on "vulkan-headers" => :build # GPUs, by MoltenVK opened at run time
  depends_on "jansson"
  depends_on "libmicrohttpd"
  depends_on "libpq" # opened at run time, for --db postgresql://
  depends_on "pcre2"
  depends_on "sqlite"
  depends_on "utf8proc"
  depends_on "wslay"

  def install
    system "meson", "setup", "build", "-Dtests=disabled", *std_meson_args
    system "meson", "compile", "-C", "build"
    system "meson", "install", "-C", "build"
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/perjoule --version")
    assert_match "token_ids", shell_output("#{bin}/perjoule run --json --no-store --power none -n 4 Hello")
  end
end
