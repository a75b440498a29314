//===- PrefillAttrs.cpp - attributes
//----------------------------------------===//
#include "mlir/IR/DialectImplementation.h"
#include "prefill/Dialect/Prefill/IR/Prefill.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace mlir::prefill;

#define GET_ATTRDEF_CLASSES
#include "prefill/Dialect/Prefill/IR/PrefillAttrs.cpp.inc"

void PrefillDialect::registerAttrs() {
  addAttributes<
#define GET_ATTRDEF_LIST
#include "prefill/Dialect/Prefill/IR/PrefillAttrs.cpp.inc"
      >();
}

/// `name = value`, preceded by a comma unless it is the first.
static ParseResult parseKeyword(AsmParser &parser, StringRef name, bool first) {
  if (!first && parser.parseComma())
    return failure();
  return failure(parser.parseKeyword(name) || parser.parseEqual());
}

Attribute RopeAttr::parse(AsmParser &parser, Type) {
  double theta = 0, factor = 1, low = 1, high = 1;
  int64_t rotaryDim = 0, original = 0;
  bool interleaved = false;
  RopeScaling scaling = RopeScaling::None;
  SMLoc loc = parser.getCurrentLocation();
  if (parser.parseLess() || parseKeyword(parser, "theta", true) ||
      parser.parseFloat(theta) || parseKeyword(parser, "rotary_dim", false) ||
      parser.parseInteger(rotaryDim))
    return {};
  while (succeeded(parser.parseOptionalComma())) {
    if (succeeded(parser.parseOptionalKeyword("interleaved"))) {
      interleaved = true;
      continue;
    }
    StringRef kind;
    if (parser.parseKeyword("scaling", " or 'interleaved'") ||
        parser.parseEqual() || parser.parseKeyword(&kind))
      return {};
    std::optional<RopeScaling> parsed = symbolizeRopeScaling(kind);
    if (!parsed) {
      parser.emitError(loc) << "unknown rope scaling '" << kind
                            << "', expected none, linear or llama3";
      return {};
    }
    scaling = *parsed;
    if (scaling == RopeScaling::None)
      continue;
    if (parser.parseLParen() || parseKeyword(parser, "factor", true) ||
        parser.parseFloat(factor))
      return {};
    if (scaling == RopeScaling::Llama3 &&
        (parseKeyword(parser, "low_freq_factor", false) ||
         parser.parseFloat(low) ||
         parseKeyword(parser, "high_freq_factor", false) ||
         parser.parseFloat(high) ||
         parseKeyword(parser, "original_max_position", false) ||
         parser.parseInteger(original)))
      return {};
    if (parser.parseRParen())
      return {};
  }
  if (parser.parseGreater())
    return {};
  return parser.getChecked<RopeAttr>(
      loc, parser.getContext(), APFloat(theta), rotaryDim, interleaved, scaling,
      APFloat(factor), APFloat(low), APFloat(high), original);
}

void RopeAttr::print(AsmPrinter &printer) const {
  auto number = [&](double value) { printer.printFloat(APFloat(value)); };
  printer << "<theta = ";
  number(getTheta());
  printer << ", rotary_dim = " << getRotaryDim();
  if (getInterleaved())
    printer << ", interleaved";
  if (getScaling() != RopeScaling::None) {
    printer << ", scaling = " << stringifyRopeScaling(getScaling())
            << "(factor = ";
    number(getFactor());
    if (getScaling() == RopeScaling::Llama3) {
      printer << ", low_freq_factor = ";
      number(getLowFreqFactor());
      printer << ", high_freq_factor = ";
      number(getHighFreqFactor());
      printer << ", original_max_position = " << getOriginalMaxPosition();
    }
    printer << ")";
  }
  printer << ">";
}
